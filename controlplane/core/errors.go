package core

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// The sentinels of the control plane. status.go of controlplane/api registers
// each with a code and a reason; P means that repeating does not help.
var (
	// ErrUnknownCell: no cell of this id is provisioned. P.
	ErrUnknownCell = errors.New("unknown cell")
	// ErrUnknownCampaign: no campaign of this id exists. P.
	ErrUnknownCampaign = errors.New("unknown campaign")
	// ErrUnknownSKU: the campaign has no book of this SKU (yet). P.
	ErrUnknownSKU = errors.New("unknown SKU")
	// ErrUnknownOperation: no operation of this id exists. P.
	ErrUnknownOperation = errors.New("unknown operation")
	// ErrUnknownApproval: no operation of this id ever asked for an approval. P.
	ErrUnknownApproval = errors.New("unknown approval")
	// ErrUnknownRecord: the journal has no record of this id. P.
	ErrUnknownRecord = errors.New("unknown journal record")

	// ErrCellExists: the id is taken by a cell with another spec. P.
	ErrCellExists = errors.New("a cell of this id exists with another spec")
	// ErrCampaignExists: the id is taken by a campaign with another file. P.
	ErrCampaignExists = errors.New("a campaign of this id exists with other contents")

	// ErrIDReused: the adjustment or operation id was used with other parameters;
	// nothing was done now. P: mint another id.
	ErrIDReused = errors.New("the id was used before with other parameters")
	// ErrVersion: the record changed since the caller read it. Read and decide again.
	ErrVersion = errors.New("the expected version is old")
	// ErrRace: other writers won every one of a bounded number of tries; nothing
	// was done. Repeat with the same id.
	ErrRace = errors.New("lost to concurrent changes")

	// ErrCellState: the cell's state refuses the step. P until the state changes.
	ErrCellState = errors.New("the cell's state refuses this")
	// ErrCellFixed: a cell keeps its id, group, topic and partitions. P.
	ErrCellFixed = errors.New("a cell keeps what it is known by")
	// ErrNotReclaimed: a fence of the cell is not booked yet; grants wait for reclaim.
	ErrNotReclaimed = errors.New("the cell's last fence is not reclaimed")
	// ErrCampaignState: the campaign's state refuses the step. P until it changes.
	ErrCampaignState = errors.New("the campaign's state refuses this")
	// ErrFrozen: a published campaign's file may not differ there any more. P.
	ErrFrozen = errors.New("a published campaign keeps its rules")
	// ErrCampaignDeleted: a campaign of this id was sold and deleted; its buyers'
	// marks count for ever, so that the id is not used again. P.
	ErrCampaignDeleted = errors.New("a campaign of this id was deleted")
	// ErrLives: something of the campaign lives still: reservations, paid orders,
	// units, a sale. P until it ends.
	ErrLives = errors.New("something of it lives still")
	// ErrOperationState: the operation has ended or may not be ended by hand. P.
	ErrOperationState = errors.New("the operation's state refuses this")
	// ErrSelfApproval: the person who asked for an operation may not approve it. P.
	ErrSelfApproval = errors.New("who asked for it may not approve it")
	// ErrNotRequester: what waits for approval is aborted by whoever asked for it, or
	// by an sre. P.
	ErrNotRequester = errors.New("another person asked for it")
	// ErrApprovalState: the approval was decided otherwise or its time is over. P.
	ErrApprovalState = errors.New("the approval's state refuses this")
	// ErrUnknownToken: no token of this id exists. P.
	ErrUnknownToken = errors.New("unknown token")
	// ErrTokenExists: the operation created a token already; its secret is not shown
	// twice. P: mint another id.
	ErrTokenExists = errors.New("the token exists, and its secret is not shown twice")
	// ErrTokenLimit: there are as many tokens as every replica may hold.
	ErrTokenLimit = errors.New("too many tokens")
	// ErrKeyMissing: a live edge or cell process has not told that it has the key's
	// bytes. Put the file there and repeat.
	ErrKeyMissing = errors.New("not everybody has the key")
	// ErrKeyRevoked: the key was revoked; it never signs again. P: mint another key.
	ErrKeyRevoked = errors.New("the key was revoked")
	// ErrKeyActive: no other key could sign. Rotate first.
	ErrKeyActive = errors.New("no other ACTIVE key signs yet")
	// ErrKeyLimit: there are as many keys of the use as messages and directories hold. P.
	ErrKeyLimit = errors.New("too many keys of this use")
	// ErrStaleCell: the step was decided against an older fence version of the
	// cell than the book has seen. Read and decide again.
	ErrStaleCell = errors.New("the step belongs to an old fence version")
	// ErrFinal: FINAL_SOLD_OUT was declared; the book takes no grant any more. P.
	ErrFinal = errors.New("the SKU is FINAL_SOLD_OUT")
	// ErrSettled: the campaign's account was taken; nothing is granted, returned or
	// limited any more. P.
	ErrSettled = errors.New("the SKU is settled")
	// ErrNotFinal: the facts do not allow FINAL_SOLD_OUT. Look again.
	ErrNotFinal = errors.New("not final")
	// ErrReserveShort: the central reserve holds fewer units than asked.
	ErrReserveShort = errors.New("the central reserve is short")
	// ErrAllocationShort: the cell's allocation holds fewer units than asked.
	ErrAllocationShort = errors.New("the cell's allocation is short")
	// ErrStockShort: the limits of the SKU's unsettled campaigns would exceed its
	// physical stock, or the stock was given as another figure before.
	ErrStockShort = errors.New("physical stock does not cover the limit")
	// ErrNoBucket: the cell is home to nobody in this campaign; units would strand.
	ErrNoBucket = errors.New("the cell owns no bucket of the campaign")
	// ErrNothingToMove: the cell that shall give owns none of these buckets, or the
	// range or the taker makes no sense. P.
	ErrNothingToMove = errors.New("there is nothing to hand over")
	// ErrMoving: some of these buckets are being handed over. Repeat when that is done.
	ErrMoving = errors.New("the buckets are being handed over")
	// ErrMoveLimit: the route remembers as many handovers as it can. P.
	ErrMoveLimit = errors.New("too many handovers of one traffic domain")
	// ErrUnknownDomain: the campaign has no traffic domain of this name. P.
	ErrUnknownDomain = errors.New("unknown traffic domain")
	// ErrNotTakingPart: the cell is none of the campaign's. P: add it first.
	ErrNotTakingPart = errors.New("the cell does not take part in the campaign; campaign add-cell lets it")
	// ErrUnknownMove: the route has no handover of this version. P.
	ErrUnknownMove = errors.New("unknown handover")
	// ErrLowering: the SKU's limit is being lowered; what is in the reserve goes
	// there, not to cells. P until it has ended or was cancelled by a raise.
	ErrLowering = errors.New("the SKU's limit is being lowered")
	// ErrBelowFloor: the limit would be below what is sold and reserved. P.
	ErrBelowFloor = errors.New("the limit is below what is sold and reserved")
	// ErrTooLarge: a record would exceed what etcd takes; nothing was done. P.
	ErrTooLarge = errors.New("too large to be stored")

	// ErrContradiction: two answers about one adjustment differ. An operator must
	// look; nothing is changed.
	ErrContradiction = errors.New("answers about one adjustment contradict each other")
	// ErrRestored: a shard knows what etcd does not: etcd lost its past. Nothing is
	// granted until an operator has confirmed the books. P.
	ErrRestored = errors.New("a shard knows more than the coordination store")
	// ErrNotLeader: this replica does not lead, or does not lead any more; nothing
	// was done.
	ErrNotLeader = errors.New("this replica does not lead")
	// ErrStoreUnavailable: etcd did not answer and nothing was done.
	ErrStoreUnavailable = errors.New("the coordination store does not answer")
	// ErrUnknownOutcome: etcd was asked to commit and the answer was lost; repeat
	// with the same id and learn.
	ErrUnknownOutcome = errors.New("the change may or may not have happened")
	// ErrBroken: an invariant would not hold. A defect, never a caller's fault.
	ErrBroken = errors.New("invariant broken")
)

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// numbered adds named numbers to a sentinel: pairs of name and value.
func numbered(sentinel error, pairs ...any) error {
	facts := map[string]string{}
	text := ""
	for i := 0; i+1 < len(pairs); i += 2 {
		name, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])
		facts[name] = value
		text += " " + name + "=" + value
	}
	return rpcstatus.With(fmt.Errorf("%w:%s", sentinel, text), facts, nil, 0)
}

// VersionConflict is ErrVersion with the two versions.
func VersionConflict(expected, present int64) error {
	return rpcstatus.With(fmt.Errorf("%w: expected %d, present %d", ErrVersion, expected, present),
		map[string]string{"expected_version": strconv.FormatInt(expected, 10), "version": strconv.FormatInt(present, 10)}, nil, 0)
}

// NotLeader is ErrNotLeader with the leader's address; "" while nobody leads.
func NotLeader(address string) error {
	return rpcstatus.With(fmt.Errorf("%w: ask the leader at %q", ErrNotLeader, address), map[string]string{"leader": address}, nil, 0)
}
