package relay_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func rawOf(t *testing.T, r *rig) *redis.Client { return r.redis.Client(t) }

func xadd(stream, message string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: []any{"m", message, "t", ""}}
}
