package shard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/pressly/goose/v3/lock"

	"github.com/cellquota/cellquota/cell/shard/migrations"
)

// TestEveryAdvisoryKeyIsOnesOwn: the list's keys differ, all SQL takes keys of the list only, and each key
// but the writers' is taken at one place.
func TestEveryAdvisoryKeyIsOnesOwn(t *testing.T) {
	locks, purposes := migrations.Locks(), map[int64]string{}
	for purpose, key := range locks {
		if other, taken := purposes[key]; taken {
			t.Errorf("%s and %s have one key", purpose, other)
		}
		purposes[key] = purpose
	}
	writers := locks["writers and fencer"]
	if locks["migrations"] != lock.DefaultLockID {
		t.Errorf("goose locks %d", lock.DefaultLockID)
	}
	numbers, offsets := regexp.MustCompile(`\d{13,}`), regexp.MustCompile(`lock_key\(\) *\+ *(\d+)`)
	taken := map[int64]int{}
	for _, pattern := range []string{"*.sql", "migrate/*.sql", "migrations/*.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var keys []int64
			for _, n := range numbers.FindAllString(string(text), -1) {
				key, err := strconv.ParseInt(n, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, key)
			}
			for _, m := range offsets.FindAllStringSubmatch(string(text), -1) {
				n, err := strconv.ParseInt(m[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, writers+n)
			}
			for _, key := range keys {
				if taken[key]++; purposes[key] == "" || taken[key] > 1 {
					t.Errorf("%s takes key %d (%q), %d times in all", file, key, purposes[key], taken[key])
				}
			}
		}
	}
	for purpose, key := range locks {
		if taken[key] == 0 && purpose != "migrations" {
			t.Errorf("nobody takes the key of %s", purpose)
		}
	}
}
