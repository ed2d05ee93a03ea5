// Package fencing is the right to write: who has it, how it is taken away, and
// what may be done with the units of a cell that lost it. It is pure: standard
// library only, no context, clock, random number, log or I/O; a time comes in as
// a value. Package fencer, below it, is the only part that touches a shard.
//
// # Why a fence
//
// A lease says who is probably alive. A cell process that is stopped for a
// minute neither renews its lease nor notices that it did not, and when it goes
// on it commits what it had begun (K01). So the right to write is a row in the
// cell's own shard, read in every write transaction, and taking the right away
// is a higher Version in that row. What the shard holds is read in statements
// after that; from then on it cannot change behind the reader's back. A report
// or a heartbeat is never evidence (K08).
//
// # In order
//
//  1. Fence. The control plane mints Version v+1, writes FENCING, and the fencer
//     installs v+1 as FENCED in the shard, which seals each SKU's available
//     units out of it. If the shard cannot be reached, this step is repeated for
//     ever: everything the cell holds is frozen, and nothing can abort it.
//  2. Prove. What the fencer then read is the Proof: per SKU sealed, reserved and
//     confirmed units; every numbered adjustment and its outcome; the positions.
//     It is stored, and the cell is FENCED (evidence STORE_FENCE).
//  3. Reclaim. For each SKU PlanReclaim compares the book, the journal and the
//     proof by adjustment id and names moves: a grant that the shard never
//     applied is voided, a return that it applied is booked, the sealed units
//     leave the allocation. Afterwards the allocation is exactly reserved +
//     confirmed; if not, ErrProofMismatch names the numbers, nothing moves, and
//     the SKU stays frozen.
//  4. Hand over. The units are in the central reserve, and others may be granted
//     them.
//  5. Restore. The shard is given v+2, settle-only first, so that the cell's
//     customers can pay, then ACTIVE. New units come by new grants only.
//
// When the shard is gone for good, two people may say so (Attestation, evidence
// ATTESTED_LOSS). Then PlanWriteOff marks the whole allocation: it may or may not
// have been sold, so it is never given to anyone, and the shard is never used
// again.
//
// # Versions and terms
//
// Version is a cell's epoch; a holder of a lower one commits nothing (I8). Term
// is the control-plane leader's epoch; a shard and a cell refuse a lower one, and
// two ids of one count mean that etcd lost its past. TrustWindow tells a cell
// whether to go on admitting when its lease is in doubt; it is about liveness
// only.
//
// # The life of a cell
//
// StepCell is a lookup in cellTable, then guards, then a copy that is checked.
// In the grid, a name is the next state, + a higher version, = no change, x a
// refusal with a named reason, ! what no working caller can send.
//
//	-- cell --
//	             PROV   ACTIV  SUSP   DRAIN  FENCG  FENCD  RESTO  REGR   RETIR
//	Register     ACTIV  ACTIV  ACTIV  DRAIN  x      x      RESTO  x      x
//	LeaseLapsed  !      SUSP   =      DRAIN  FENCG  FENCD  RESTO  REGR   =
//	Drain        x      DRAIN  x      =      x      x      x      x      x
//	AbortDrain   x      =      =      ACTIV  x      x      x      x      x
//	Fence        FENCG+ FENCG+ FENCG+ FENCG+ FENCG  =      FENCG+ x      x
//	Proven       !      x      x      x      FENCD  =      x      x      x
//	LossAttested x      x      x      x      FENCD  FENCD  x      FENCD+ x
//	Restore      x      x      x      x      x      RESTO+ RESTO  x      x
//	Activated    !      =      =      =      x      x      ACTIV  x      x
//	Regress      REGR   REGR   REGR   REGR   REGR   REGR   REGR   =      x
//	Recover      x      x      x      x      x      x      x      REGR+  x
//	Recovered    !      =      =      =      x      x      =      RESTO  x
//	Retire       RETIR  x      x      RETIR  x      RETIR  x      x      =
//
//	PROVISIONED
//	    Register     -> ACTIVE: GrantLease
//	    Fence        -> FENCING, higher version: RunStoreFence
//	    Regress      -> REGRESSED
//	    Retire       -> RETIRED: RunRetire
//	ACTIVE
//	    Register     -> ACTIVE: GrantLease
//	    LeaseLapsed  -> SUSPECT
//	    Drain        -> DRAINING: AskReturns
//	    Fence        -> FENCING, higher version: RunStoreFence
//	    Regress      -> REGRESSED
//	SUSPECT
//	    Register     -> ACTIVE: GrantLease
//	    Fence        -> FENCING, higher version: RunStoreFence
//	    Regress      -> REGRESSED
//	DRAINING
//	    Register     -> DRAINING: GrantLease
//	    LeaseLapsed  -> DRAINING
//	    AbortDrain   -> ACTIVE
//	    Fence        -> FENCING, higher version: RunStoreFence
//	    Regress      -> REGRESSED
//	    Retire       -> RETIRED: RunRetire
//	FENCING
//	    LeaseLapsed  -> FENCING
//	    Fence        -> FENCING: RunStoreFence
//	    Proven       -> FENCED
//	    LossAttested -> FENCED: RecordWriteOff
//	    Regress      -> REGRESSED
//	FENCED
//	    LeaseLapsed  -> FENCED
//	    LossAttested -> FENCED: RecordWriteOff
//	    Restore      -> RESTORING, higher version: RunRestore
//	    Regress      -> REGRESSED
//	    Retire       -> RETIRED: RunRetire
//	RESTORING
//	    Register     -> RESTORING: GrantLease
//	    LeaseLapsed  -> RESTORING
//	    Fence        -> FENCING, higher version: RunStoreFence
//	    Restore      -> RESTORING: RunRestore
//	    Activated    -> ACTIVE
//	    Regress      -> REGRESSED
//	REGRESSED
//	    LeaseLapsed  -> REGRESSED
//	    LossAttested -> FENCED, higher version: RecordWriteOff
//	    Recover      -> REGRESSED, higher version: RunRecover
//	    Recovered    -> RESTORING
//	RETIRED
//	-- end --
//
// A healthy cell is fenced by force only, and the last live cell not at all.
// SUSPECT is what ACTIVE is called while no instance holds a lease; it is never
// stored.
//
// # The way of a reclaim
//
// StepReclaim is the same for the operation that takes a cell from its fence to
// selling again. A driver stores what a step gives, then carries out what is Due,
// and sends the outcome as the next event. After a crash it reads the record and
// carries out what is Due again: every effect is idempotent by (kind, cell,
// version, SKU). w is a wish: a command that came early and is granted when its
// state is reached, which is how `fence --reclaim --top-up` works. A restore
// first books what the fence proved, because the shard has given those units up
// already.
//
//	-- reclaim --
//	               REQST  FENCG  FENCD  RECLG  RECLD  RESTO  SETTL  ACTIV
//	FencingWritten FENCG  =      =      =      =      =      =      =
//	ProofStored    !      FENCD  =      =      =      =      =      =
//	WriteOff       x      RECLG  x      x      RECLG  x      x      x
//	BeginReclaim   w      w      RECLG  =      RECLG  x      x      x
//	SKUBooked      !      !      !      RECLG  =      =      =      =
//	SKUWithheld    !      !      !      RECLG  =      =      =      =
//	BeginTopUp     w      w      w      w      w      w      w      w
//	ToppedUp       !      !      !      !      RECLD  RESTO  SETTL  ACTIV
//	BeginRestore   x      x      RECLG  w      RESTO  =      =      =
//	ShardSettling  !      !      !      !      !      SETTL  =      =
//	ShardActive    !      !      !      !      !      !      ACTIV  =
//	StepFailed     REQST  FENCG  =      RECLG  RECLD  RESTO  SETTL  ACTIV
//
//	FENCE_REQUESTED owes: WriteFencing
//	FENCING         owes: RunStoreFence StoreProof
//	FENCED          rests
//	RECLAIMING      owes: BookReclaim
//	RECLAIMED       rests
//	RESTORING       owes: WriteRestoring RunRestore
//	SETTLE_ONLY     owes: AwaitSettled RunActivate WriteActive
//	ACTIVE          rests
//	-- end --
//
// # Neighbours
//
// controlplane/core keeps cells and books; controlplane/reclaim drives; package
// fencer and cell/shard's functions do the work in PostgreSQL; cells use Version,
// Term and TrustWindow.
package fencing
