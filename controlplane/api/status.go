package api

import (
	"google.golang.org/grpc/codes"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Kinds is how the control plane's sentinels cross the wire.
func Kinds() []rpcstatus.Kind {
	return []rpcstatus.Kind{
		{Err: core.ErrUnknownCell, Code: codes.NotFound, Reason: "UNKNOWN_CELL"},
		{Err: core.ErrUnknownCampaign, Code: codes.NotFound, Reason: "UNKNOWN_CAMPAIGN"},
		{Err: core.ErrUnknownSKU, Code: codes.NotFound, Reason: "UNKNOWN_SKU"},
		{Err: core.ErrUnknownOperation, Code: codes.NotFound, Reason: "UNKNOWN_OPERATION"},
		{Err: core.ErrUnknownApproval, Code: codes.NotFound, Reason: "UNKNOWN_APPROVAL"},
		{Err: core.ErrUnknownRecord, Code: codes.NotFound, Reason: "UNKNOWN_RECORD"},
		{Err: errUnknownFinding, Code: codes.NotFound, Reason: "UNKNOWN_FINDING"},
		{Err: errUnknownOrder, Code: codes.NotFound, Reason: "UNKNOWN_ORDER"},
		{Err: core.ErrCellExists, Code: codes.AlreadyExists, Reason: "CELL_EXISTS"},
		{Err: core.ErrCampaignExists, Code: codes.AlreadyExists, Reason: "CAMPAIGN_EXISTS"},
		{Err: core.ErrIDReused, Code: codes.Aborted, Reason: "ID_REUSED"},
		{Err: core.ErrVersion, Code: codes.Aborted, Reason: "VERSION_CONFLICT"},
		{Err: core.ErrRace, Code: codes.Aborted, Reason: "LOST_RACE"},
		{Err: core.ErrCellState, Code: codes.FailedPrecondition, Reason: "CELL_STATE"},
		{Err: core.ErrCellFixed, Code: codes.FailedPrecondition, Reason: "CELL_FIXED"},
		{Err: core.ErrNotReclaimed, Code: codes.FailedPrecondition, Reason: "NOT_RECLAIMED"},
		{Err: core.ErrCampaignState, Code: codes.FailedPrecondition, Reason: "CAMPAIGN_STATE"},
		{Err: core.ErrFrozen, Code: codes.FailedPrecondition, Reason: "CAMPAIGN_FROZEN"},
		{Err: core.ErrCampaignDeleted, Code: codes.AlreadyExists, Reason: "CAMPAIGN_DELETED"},
		{Err: core.ErrLives, Code: codes.FailedPrecondition, Reason: "CAMPAIGN_LIVES"},
		{Err: core.ErrOperationState, Code: codes.FailedPrecondition, Reason: "OPERATION_STATE"},
		{Err: core.ErrSelfApproval, Code: codes.PermissionDenied, Reason: "SELF_APPROVAL"},
		{Err: core.ErrNotRequester, Code: codes.PermissionDenied, Reason: "NOT_REQUESTER"},
		{Err: core.ErrApprovalState, Code: codes.FailedPrecondition, Reason: "APPROVAL_STATE"},
		{Err: core.ErrUnknownToken, Code: codes.NotFound, Reason: "UNKNOWN_TOKEN"},
		{Err: core.ErrTokenExists, Code: codes.AlreadyExists, Reason: "TOKEN_EXISTS"},
		{Err: core.ErrTokenLimit, Code: codes.ResourceExhausted, Reason: "TOO_MANY_TOKENS"},
		{Err: core.ErrKeyMissing, Code: codes.FailedPrecondition, Reason: "KEY_MISSING"},
		{Err: core.ErrKeyRevoked, Code: codes.FailedPrecondition, Reason: "KEY_REVOKED"},
		{Err: core.ErrKeyActive, Code: codes.FailedPrecondition, Reason: "KEY_ACTIVE"},
		{Err: core.ErrKeyLimit, Code: codes.ResourceExhausted, Reason: "TOO_MANY_KEYS"},
		{Err: core.ErrStaleCell, Code: codes.Aborted, Reason: "STALE_CELL"},
		{Err: core.ErrFinal, Code: codes.FailedPrecondition, Reason: "FINAL_SOLD_OUT"},
		{Err: core.ErrSettled, Code: codes.FailedPrecondition, Reason: "SETTLED"},
		{Err: core.ErrNotFinal, Code: codes.FailedPrecondition, Reason: "NOT_FINAL"},
		{Err: core.ErrReserveShort, Code: codes.FailedPrecondition, Reason: "RESERVE_SHORT"},
		{Err: core.ErrAllocationShort, Code: codes.FailedPrecondition, Reason: "ALLOCATION_SHORT"},
		{Err: core.ErrStockShort, Code: codes.FailedPrecondition, Reason: "STOCK_SHORT"},
		{Err: core.ErrNoBucket, Code: codes.FailedPrecondition, Reason: "NO_BUCKET"},
		{Err: core.ErrNothingToMove, Code: codes.FailedPrecondition, Reason: "NOTHING_TO_MOVE"},
		{Err: core.ErrMoving, Code: codes.FailedPrecondition, Reason: "BUCKETS_MOVING"},
		{Err: core.ErrMoveLimit, Code: codes.FailedPrecondition, Reason: "TOO_MANY_MOVES"},
		{Err: core.ErrUnknownDomain, Code: codes.NotFound, Reason: "UNKNOWN_DOMAIN"},
		{Err: core.ErrNotTakingPart, Code: codes.FailedPrecondition, Reason: "CELL_NOT_IN_CAMPAIGN"},
		{Err: core.ErrUnknownMove, Code: codes.NotFound, Reason: "UNKNOWN_MOVE"},
		{Err: core.ErrLowering, Code: codes.FailedPrecondition, Reason: "LIMIT_LOWERING"},
		{Err: core.ErrBelowFloor, Code: codes.FailedPrecondition, Reason: "BELOW_FLOOR"},
		{Err: core.ErrTooLarge, Code: codes.FailedPrecondition, Reason: "TOO_LARGE"},
		{Err: core.ErrContradiction, Code: codes.FailedPrecondition, Reason: "CONTRADICTION"},
		{Err: core.ErrRestored, Code: codes.FailedPrecondition, Reason: "STORE_RESTORED"},
		{Err: core.ErrNotLeader, Code: codes.Unavailable, Reason: "NOT_LEADER"},
		{Err: core.ErrStoreFull, Code: codes.Unavailable, Reason: "STORE_NOSPACE"},
		{Err: core.ErrStoreUnavailable, Code: codes.Unavailable, Reason: "STORE_UNAVAILABLE"},
		{Err: core.ErrUnknownOutcome, Code: codes.Unknown, Reason: "CHANGE_UNKNOWN"},
		{Err: core.ErrBroken, Code: codes.Internal, Reason: "INVARIANT_BROKEN"},

		{Err: shards.ErrUnreachable, Code: codes.Unavailable, Reason: "SHARD_UNREACHABLE"},
		{Err: undersell.ErrMoving, Code: codes.Unavailable, Reason: "UNITS_IN_MOTION"},

		// What the archive lacks needs a person; that it does not answer, a repeat.
		{Err: archive.ErrMissing, Code: codes.DataLoss, Reason: "ARCHIVE_MISSING"},
		{Err: archive.ErrCorrupt, Code: codes.DataLoss, Reason: "ARCHIVE_CORRUPT"},
		{Err: archive.ErrDiffers, Code: codes.DataLoss, Reason: "ARCHIVE_DIFFERS"},
		{Err: archive.ErrUnavailable, Code: codes.Unavailable, Reason: "ARCHIVE_UNAVAILABLE"},

		// Why a cell refuses a fence, a reclaim or a restore.
		{Err: fencing.ErrHealthy, Code: codes.FailedPrecondition, Reason: "CELL_HEALTHY"},
		{Err: fencing.ErrLastLiveCell, Code: codes.FailedPrecondition, Reason: "LAST_LIVE_CELL"},
		{Err: fencing.ErrNotFenced, Code: codes.FailedPrecondition, Reason: "CELL_NOT_FENCED"},
		{Err: fencing.ErrFenceFirst, Code: codes.FailedPrecondition, Reason: "FENCE_FIRST"},
		{Err: fencing.ErrNotProven, Code: codes.FailedPrecondition, Reason: "FENCE_NOT_PROVEN"},
		{Err: fencing.ErrFenced, Code: codes.FailedPrecondition, Reason: "CELL_FENCED"},
		{Err: fencing.ErrRestoring, Code: codes.FailedPrecondition, Reason: "CELL_RESTORING"},
		{Err: fencing.ErrRegressed, Code: codes.FailedPrecondition, Reason: "CELL_REGRESSED"},
		{Err: fencing.ErrDrainFirst, Code: codes.FailedPrecondition, Reason: "DRAIN_FIRST"},
		{Err: fencing.ErrNotDraining, Code: codes.FailedPrecondition, Reason: "CELL_NOT_DRAINING"},
		{Err: fencing.ErrNotLive, Code: codes.FailedPrecondition, Reason: "CELL_NOT_LIVE"},
		{Err: fencing.ErrNotEmpty, Code: codes.FailedPrecondition, Reason: "CELL_NOT_EMPTY"},
		{Err: fencing.ErrRetired, Code: codes.FailedPrecondition, Reason: "CELL_RETIRED"},
		{Err: fencing.ErrOtherGroup, Code: codes.FailedPrecondition, Reason: "OTHER_GROUP"},
		{Err: fencing.ErrLost, Code: codes.FailedPrecondition, Reason: "SHARD_LOST"},
		{Err: fencing.ErrStaleRecord, Code: codes.Aborted, Reason: "STALE_RECORD"},
		{Err: fencing.ErrProofMismatch, Code: codes.FailedPrecondition, Reason: "PROOF_MISMATCH"},
		{Err: fencing.ErrTransition, Code: codes.FailedPrecondition, Reason: "CELL_TRANSITION"},
	}
}
