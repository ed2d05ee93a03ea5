package handover

// rule is one cell of the table: the next state, which may be the same one, or why not.
type rule struct {
	next State
	why  error
}

func to(s State) rule     { return rule{next: s} }
func no(why error) rule   { return rule{why: why} }
func never() rule         { return no(ErrImpossible) }
func stays(s State) rule  { return to(s) } // an outcome that was stored already
func ended() [events]rule { return every(no(ErrEnded)) }

func every(r rule) (row [events]rule) {
	for e := range row {
		row[e] = r
	}
	return row
}

// table is what every event does in every state. A giver that is lost after its pages
// were carried is not needed any more.
var table = [states][events]rule{
	Asked: {
		OrderedEvent: to(Moving), ClosedEvent: never(), CarriedEvent: never(), OpenedEvent: never(), TurnedEvent: never(),
		Abort: to(Ended), GiverLost: to(Ended),
	},
	Moving: {
		OrderedEvent: stays(Moving), ClosedEvent: to(Closed), CarriedEvent: never(), OpenedEvent: never(), TurnedEvent: never(),
		Abort: no(ErrBegun), GiverLost: to(Ended),
	},
	Closed: {
		OrderedEvent: stays(Closed), ClosedEvent: stays(Closed), CarriedEvent: to(Carried), OpenedEvent: never(), TurnedEvent: never(),
		Abort: no(ErrBegun), GiverLost: to(Ended),
	},
	Carried: {
		OrderedEvent: stays(Carried), ClosedEvent: stays(Carried), CarriedEvent: stays(Carried), OpenedEvent: to(Opened), TurnedEvent: never(),
		Abort: no(ErrBegun), GiverLost: stays(Carried),
	},
	Opened: {
		OrderedEvent: stays(Opened), ClosedEvent: stays(Opened), CarriedEvent: stays(Opened), OpenedEvent: stays(Opened), TurnedEvent: to(Turned),
		Abort: no(ErrBegun), GiverLost: stays(Opened),
	},
	Turned: ended(),
	Ended:  ended(),
}

// due is what each state asks for.
var due = [states]Effect{Asked: WriteMoving, Moving: CloseBuckets, Closed: CarryPages, Carried: OpenBuckets, Opened: TurnRoute}
