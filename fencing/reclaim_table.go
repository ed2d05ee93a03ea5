package fencing

// reclaimRule is one cell of the table.
type reclaimRule struct {
	kind ruleKind
	next ReclaimState
	why  error // for rejects and impossible
}

// reclaimRow is one state: what it owes, and what every event does.
type reclaimRow struct {
	owes []EffectKind // in this order; a kind of book effect once per pending SKU
	on   [reclaimEvents]reclaimRule
}

var (
	r0     = reclaimRule{kind: impossible, why: ErrImpossible}
	rSame  = reclaimRule{kind: noOp}   // a repeat, or late news
	rWish  = reclaimRule{kind: wishes} // remembered until the state that takes it
	rFence = rNo(ErrFenceFirst)        // the fence is over: begin with a new one
)

func rTo(next ReclaimState) reclaimRule { return reclaimRule{kind: moves, next: next} }
func rNo(why error) reclaimRule         { return reclaimRule{kind: rejects, why: why} }

// reclaimTable is the way from a fence to selling again. After a move, standing
// wishes are granted and an empty list of pending SKUs ends RECLAIMING; see
// settle. A write-off repeated is a no-op in every state, and so is an outcome
// that the table marks as late; guards are in guard.
//
// The grid in doc.go is made from it; a test fails where they differ.
var reclaimTable = [reclaimStates]reclaimRow{
	FenceRequested: {
		owes: []EffectKind{WriteFencing},
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rTo(FenceRunning),
			ProofStored:    r0,
			WriteOff:       rFence,
			BeginReclaim:   rWish,
			SKUBooked:      r0,
			SKUWithheld:    r0,
			BeginTopUp:     rWish,
			ToppedUp:       r0,
			BeginRestore:   rNo(ErrNotProven),
			ShardSettling:  r0,
			ShardActive:    r0,
			StepFailed:     rTo(FenceRequested),
		},
	},
	FenceRunning: {
		owes: []EffectKind{RunStoreFence, StoreProof},
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rTo(FenceProven),
			WriteOff:       rTo(Reclaiming),
			BeginReclaim:   rWish,
			SKUBooked:      r0,
			SKUWithheld:    r0,
			BeginTopUp:     rWish,
			ToppedUp:       r0,
			BeginRestore:   rNo(ErrNotProven),
			ShardSettling:  r0,
			ShardActive:    r0,
			StepFailed:     rTo(FenceRunning), // the shard cannot be reached: frozen, retried, never aborted
		},
	},
	FenceProven: {
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rNo(ErrReclaimFirst),
			BeginReclaim:   rTo(Reclaiming),
			SKUBooked:      r0,
			SKUWithheld:    r0,
			BeginTopUp:     rWish,
			ToppedUp:       r0,
			BeginRestore:   rTo(Reclaiming), // and a wish: the shard gave the sealed units up, so must the book
			ShardSettling:  r0,
			ShardActive:    r0,
			StepFailed:     rSame,
		},
	},
	Reclaiming: {
		owes: []EffectKind{BookReclaim},
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rNo(ErrReclaimFirst),
			BeginReclaim:   rSame,
			SKUBooked:      rTo(Reclaiming),
			SKUWithheld:    rTo(Reclaiming),
			BeginTopUp:     rWish,
			ToppedUp:       r0,
			BeginRestore:   rWish,
			ShardSettling:  r0,
			ShardActive:    r0,
			StepFailed:     rTo(Reclaiming),
		},
	},
	Reclaimed: {
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rTo(Reclaiming), // the shard died after its fence
			BeginReclaim:   rTo(Reclaiming), // what was withheld is tried again
			SKUBooked:      rSame,
			SKUWithheld:    rSame,
			BeginTopUp:     rWish,
			ToppedUp:       rTo(Reclaimed),
			BeginRestore:   rTo(RestoreRunning),
			ShardSettling:  r0,
			ShardActive:    r0,
			StepFailed:     rTo(Reclaimed),
		},
	},
	RestoreRunning: {
		owes: []EffectKind{WriteRestoring, RunRestore},
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rFence,
			BeginReclaim:   rNo(ErrRestoring),
			SKUBooked:      rSame,
			SKUWithheld:    rSame,
			BeginTopUp:     rWish,
			ToppedUp:       rTo(RestoreRunning),
			BeginRestore:   rSame,
			ShardSettling:  rTo(SettleOnly),
			ShardActive:    r0,
			StepFailed:     rTo(RestoreRunning),
		},
	},
	SettleOnly: {
		owes: []EffectKind{AwaitSettled, RunActivate, WriteActive},
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rFence,
			BeginReclaim:   rNo(ErrRestoring),
			SKUBooked:      rSame,
			SKUWithheld:    rSame,
			BeginTopUp:     rWish,
			ToppedUp:       rTo(SettleOnly),
			BeginRestore:   rSame,
			ShardSettling:  rSame,
			ShardActive:    rTo(ActiveAgain),
			StepFailed:     rTo(SettleOnly),
		},
	},
	ActiveAgain: {
		on: [reclaimEvents]reclaimRule{
			FencingWritten: rSame,
			ProofStored:    rSame,
			WriteOff:       rFence,
			BeginReclaim:   rFence,
			SKUBooked:      rSame,
			SKUWithheld:    rSame,
			BeginTopUp:     rWish,
			ToppedUp:       rTo(ActiveAgain),
			BeginRestore:   rSame,
			ShardSettling:  rSame,
			ShardActive:    rSame,
			StepFailed:     rTo(ActiveAgain),
		},
	},
}
