package core

// abortRules say, kind by kind, why an operation that has begun may not be ended
// by hand; "" means that it may, as long as no step of it is done. A kind that is
// not listed may not.
var abortRules = map[string]string{
	OperationPublish:   "",
	OperationRebalance: "",
	OperationFence:     "a fence ends by proof or write-off only",
	OperationReclaim:   "what it began must be finished",
	OperationRestore:   "what it began must be finished",
	OperationWriteOff:  "it was approved; what it began must be finished",
	OperationDrain:     "its cell is DRAINING; `cell drain --abort` ends it and lets the cell sell again",
	OperationRetire:    "what it began must be finished",
	OperationRebuild:   "",
	OperationCancel:    "it was approved; what it began must be finished",
	OperationSetLimit:  "its limit target stands in the book; raise the limit to end it",
	OperationDraw:      "entry was closed; a draw that some shards know is finished",
	OperationTransfer:  "its return was proposed to the giver; what it began must be finished",
	OperationHandOver:  "", // until its giver may have closed buckets
	OperationRecover:   "", // every pass begins anew, and etcd stays RESTORED: another recovery does it all
}

// MayAbort tells whether somebody may end the operation by hand. One that waits
// for a second person has done nothing, whatever its kind: its requester may, and
// whoever may abort anybody's (anyones); ErrNotRequester for others. Else the
// rule of its kind decides: ErrOperationState says why not. A recovery of the store,
// which only some may ask for, nobody else ends either.
func (o Operation) MayAbort(a Approval, asked bool, who string, anyones bool) error {
	rule, listed := abortRules[o.Kind]
	switch waiting := o.NeedsApproval && asked && a.State == ApprovalPending && len(o.Steps) == 0; {
	case o.State.Terminal():
		return o.Refuses("it has ended")
	case waiting && (who == o.Actor || anyones):
		return nil
	case waiting:
		return numbered(ErrNotRequester, "operation_id", o.ID, "requester", o.Actor)
	case o.Kind == OperationRecover && who != o.Actor && !anyones:
		return numbered(ErrNotRequester, "operation_id", o.ID, "requester", o.Actor)
	case rule != "":
		return o.Refuses(rule)
	case !listed || len(o.Steps) > 0:
		return o.Refuses("what it began must be finished")
	}
	return nil
}
