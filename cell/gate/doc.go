// Package gate decides how many admissions of a SKU may wait for their outcome at
// once, so that the wait stays within what the campaign accepts.
//
// # The machine
//
// Six states, seven events, one table (machine.go). The test TestTableIsDrawn fails
// when this picture is not the table:
//
//	               Calm           Ramped         Slow           Full           Empty          Halt           Final
//	OPEN           impossible     stays          THROTTLED      QUEUE_FULL     TEMP_SOLD_OUT  PAUSED         FINAL_SOLD_OUT
//	THROTTLED      stays          OPEN           stays          QUEUE_FULL     TEMP_SOLD_OUT  PAUSED         FINAL_SOLD_OUT
//	QUEUE_FULL     THROTTLED      OPEN           THROTTLED      stays          TEMP_SOLD_OUT  PAUSED         FINAL_SOLD_OUT
//	TEMP_SOLD_OUT  THROTTLED      OPEN           THROTTLED      QUEUE_FULL     stays          PAUSED         FINAL_SOLD_OUT
//	FINAL_SOLD_OUT stays          stays          stays          stays          stays          stays          stays
//	PAUSED         THROTTLED      impossible     THROTTLED      QUEUE_FULL     TEMP_SOLD_OUT  stays          FINAL_SOLD_OUT
//
// FINAL_SOLD_OUT is declared by the control plane, never found here: an empty mirror
// is TEMP_SOLD_OUT, and a dependency at fault is PAUSED, whatever the stock.
//
// # The bound
//
//	bound = min(rate × max wait, capacity under failure) >> (Steps - step)
//
// The rate of outcomes is measured under backlog only (an idle cell is not a slow
// one) and never taken below its floor. The step falls with slowness and to nothing
// with a halt, and rises by one with every other look: recovery doubles, it does not
// jump. Stock bounds itself: it is not in the formula.
//
// # Parts
//
// machine.go is the table, step.go one look at a SKU, meter.go the rate. Everything
// here is pure; package keeper reads the mirror, steps and writes. The script refuses
// by PAUSED and FINAL_SOLD_OUT and by the bound; the other states name why.
package gate
