package fencing

// EffectKind is something that a step obliges its driver to do. It is data: a
// driver stores the stepped subject first, and then carries the effects out in
// their order, again after a crash. Every effect is idempotent by (kind, cell,
// version, SKU): carried out twice, it is done once.
type EffectKind uint8

// The effects. The zero value is none of them.
const (
	GrantLease     EffectKind = iota + 1 // a lease for the instance; tell it version and term
	AskReturns                           // ask the shard to give back what is available
	RunRecover                           // fencer: the version, replay what is missing, SETTLE_ONLY
	RunRetire                            // fencer: end the shard's row, unless the shard is lost
	WriteFencing                         // cell record: FENCING and the version
	RunStoreFence                        // fencer: the version, FENCED, seal; read the proof
	StoreProof                           // one transaction: the proof, the cell FENCED
	RecordWriteOff                       // cell record: FENCED by ATTESTED_LOSS; its books follow by BookWriteOff
	BookReclaim                          // one SKU: PlanReclaim, then one book transaction
	BookWriteOff                         // one SKU: PlanWriteOff, then one book transaction
	TopUpOthers                          // grant what was reclaimed to live cells, adjustment ids derived
	WriteRestoring                       // cell record: RESTORING and the version
	RunRestore                           // fencer: the version, SETTLE_ONLY
	AwaitSettled                         // wait until the backlog is judged and the close grace is over
	RunActivate                          // fencer: ACTIVE at the version
	WriteActive                          // cell record: ACTIVE
)

var effectNames = [...]string{
	GrantLease: "GrantLease", AskReturns: "AskReturns", RunRecover: "RunRecover", RunRetire: "RunRetire",
	WriteFencing: "WriteFencing", RunStoreFence: "RunStoreFence", StoreProof: "StoreProof", RecordWriteOff: "RecordWriteOff",
	BookReclaim: "BookReclaim", BookWriteOff: "BookWriteOff", TopUpOthers: "TopUpOthers", WriteRestoring: "WriteRestoring",
	RunRestore: "RunRestore", AwaitSettled: "AwaitSettled", RunActivate: "RunActivate", WriteActive: "WriteActive",
}

// String gives the effect's name.
func (k EffectKind) String() string { return word("EffectKind", effectNames[:], int(k)) }

// Effect is one obligation.
type Effect struct {
	Kind    EffectKind
	Cell    string
	Version Version // the fence version it is about
	SKU     SKU     // of BookReclaim and BookWriteOff; else zero
}
