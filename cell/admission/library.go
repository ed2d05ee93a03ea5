package admission

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// libraryName carries the library's version. Its text may change only together
// with the number (and the cq2_ of its functions): two programs of two versions
// then serve side by side, each with its own library.
const libraryName = "cellquota_v2"

//go:embed lua/*.lua
var luaFiles embed.FS

// libraryOrder is the order in which the files make one library.
var libraryOrder = []string{
	"library", "admit", "precheck", "effect", "returns", "acked", "install", "read",
}

// libraryText is the whole library as Redis is given it.
var libraryText = mustReadLibrary()

func mustReadLibrary() string {
	var b strings.Builder
	for _, name := range libraryOrder {
		text, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic("admission: " + err.Error()) // embedded at build time
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// loadLibrary makes every master have our library; one of our name with another
// text is ErrLibrary and left alone.
func (c *Client) loadLibrary(ctx context.Context) error {
	c.loading.Lock()
	defer c.loading.Unlock()
	return c.loadLocked(ctx)
}

func (c *Client) loadLocked(ctx context.Context) error {
	return c.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		have, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryName, WithCode: true}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return translate(err)
		}
		if len(have) == 1 {
			return sameLibrary(have[0].Code)
		}
		err = node.FunctionLoad(ctx, libraryText).Err()
		if err != nil && strings.Contains(err.Error(), "already exists") {
			return nil // another process was first; the next check compares
		}
		return translate(err)
	})
}

func sameLibrary(code string) error {
	if code != libraryText {
		return fmt.Errorf("%w: stop the programs that use it, then FUNCTION DELETE %s", ErrLibrary, libraryName)
	}
	return nil
}

// Loaded gives the library's name, with its version, and whether every master has
// it as this program has. It loads nothing. ErrUnavailable.
func (c *Client) Loaded(ctx context.Context) (name string, loaded bool, err error) {
	var missing atomic.Bool
	err = c.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		have, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryName, WithCode: true}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return translate(err)
		}
		if len(have) != 1 || have[0].Code != libraryText {
			missing.Store(true)
		}
		return nil
	})
	return libraryName, err == nil && !missing.Load(), err
}
