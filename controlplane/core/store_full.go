package core

// ErrStoreFull: etcd has raised NOSPACE and refuses every write, and nothing was
// done. It is a kind of ErrStoreUnavailable: whoever waits for the store waits for
// this too. Reads, leases that live, and every sale go on. It ends when an operator
// has made room (compact, defragment) and disarmed the alarm.
var ErrStoreFull error = storeFull{}

type storeFull struct{}

func (storeFull) Error() string {
	return "the coordination store is full (NOSPACE) and refuses every write until there is room and its alarm is disarmed"
}

// Is makes it a kind of ErrStoreUnavailable.
func (storeFull) Is(target error) bool { return target == ErrStoreUnavailable }
