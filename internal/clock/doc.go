// Package clock is the only door to time in Cellquota.
//
// Job: hand out the present instant, timers, tickers and interruptible sleeps,
// so that every loop can be driven by a test and a process's idea of now can be
// shifted (`--clock-offset`, dev only) without touching the machine.
//
// Promise: outside tests no other package calls time.Now, time.Since,
// time.After, time.Tick, time.Sleep, time.NewTimer or time.NewTicker;
// internal/tidy refuses them. System reads the machine, Offset shifts another
// clock's Now and leaves its waits alone, Manual moves only when it is told to.
//
// What a Go clock decides: when a loop runs next. It never decides whether a
// unit is sold: admission asks Redis TIME and the shard asks cellquota.now().
//
// Neighbours: everything imports it; it imports the standard library only.
package clock
