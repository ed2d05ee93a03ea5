package admission

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// libraryLoads is how often one call loads a lost library before it gives up.
const libraryLoads = 3

// function is one function of the library with its types: In renders keys and
// arguments in the contract's order, decode reads the fixed array of the reply.
type function[In, Out any] struct {
	name   string
	render func(In) (keys []string, args []any)
	decode func(reply) (Out, error)
}

// reply is a fixed array of integers and strings. Reading it past its end or at
// another type marks it broken; err tells.
type reply struct {
	values []any
	broken *error
}

// run calls f for every input in one pipeline and answers in the same order. Each
// input has its own error, already translated. A lost library is loaded and the
// calls that missed it are made again, a few times (it may be lost again meanwhile); every
// function may be called twice.
func (f function[In, Out]) run(ctx context.Context, c *Client, pool redis.UniversalClient, ins []In) ([]Out, []error) {
	outs, errs := make([]Out, len(ins)), make([]error, len(ins))
	todo := make([]int, len(ins))
	for i := range todo {
		todo[i] = i
	}
	for attempt := 0; len(todo) > 0; attempt++ {
		lost := f.pipeline(ctx, pool, ins, todo, outs, errs)
		if len(lost) == 0 || attempt == libraryLoads {
			break
		}
		if err := c.loadLibrary(ctx); err != nil {
			for _, i := range lost {
				errs[i] = err
			}
			break
		}
		todo = lost
	}
	return outs, errs
}

// pipeline sends the calls of todo and returns those whose function was missing.
func (f function[In, Out]) pipeline(ctx context.Context, pool redis.UniversalClient, ins []In, todo []int, outs []Out, errs []error) (lost []int) {
	pipe := pool.Pipeline()
	calls := make([]*redis.Cmd, len(todo))
	for n, i := range todo {
		keys, args := f.render(ins[i])
		calls[n] = pipe.FCall(ctx, f.name, keys, args...)
	}
	_, execErr := pipe.Exec(ctx)
	for n, i := range todo {
		values, err := calls[n].Slice()
		if err == nil {
			outs[i], errs[i] = f.read(values)
			continue
		}
		if isFunctionLost(err) {
			lost = append(lost, i)
		}
		if execErr != nil && !isAnswer(err) {
			err = execErr // the pipeline's own failure, with its cause
		}
		errs[i] = translate(err)
	}
	return lost
}

func (f function[In, Out]) read(values []any) (Out, error) {
	var broken error
	out, err := f.decode(reply{values: values, broken: &broken})
	if broken != nil {
		err = broken
	}
	if err != nil {
		var zero Out
		return zero, fmt.Errorf("%w: %s: %w", ErrBroken, f.name, err)
	}
	return out, nil
}

// one is run for a single input.
func (f function[In, Out]) one(ctx context.Context, c *Client, pool redis.UniversalClient, in In) (Out, error) {
	outs, errs := f.run(ctx, c, pool, []In{in})
	return outs[0], errs[0]
}

func (r reply) fail(i int, want string) {
	if *r.broken == nil {
		*r.broken = fmt.Errorf("element %d of %d is not %s", i+1, len(r.values), want)
	}
}

// arity marks r broken unless it has n elements.
func (r reply) arity(n int) {
	if len(r.values) != n && *r.broken == nil {
		*r.broken = fmt.Errorf("%d elements, not %d", len(r.values), n)
	}
}

func (r reply) int(i int) int64 {
	if i < len(r.values) {
		if n, ok := r.values[i].(int64); ok {
			return n
		}
	}
	r.fail(i, "an integer")
	return 0
}

func (r reply) text(i int) string {
	if i < len(r.values) {
		if s, ok := r.values[i].(string); ok {
			return s
		}
	}
	r.fail(i, "a string")
	return ""
}

// code reads element 0 as one of n named codes, 1 to n.
func (r reply) code(n int) int {
	code := r.int(0)
	if code < 1 || code > int64(n) {
		r.fail(0, fmt.Sprintf("a code from 1 to %d", n))
		return 0
	}
	return int(code)
}
