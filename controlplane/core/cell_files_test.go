package core_test

import (
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
)

// The table of Naming.Refuses, row by row.
func TestWhichFilesACellMayName(t *testing.T) {
	spec := func(password, reader string, addrs ...string) core.CellSpec {
		return core.CellSpec{
			ID: "cell-1", Region: "east", Redis: core.RedisSpec{Addrs: addrs, PasswordFile: password},
			Shard: core.ShardSpec{DSNFile: "/anywhere", ReaderDSNFile: reader},
		}
	}
	none := core.CellSpec{}
	const both = "redis.password_file shard.reader_dsn_file"
	for _, r := range []struct {
		name       string
		n          core.Naming
		is, stored core.CellSpec
		fields     string
	}{
		{"sre below", core.Naming{Dir: "/s", Anywhere: true}, spec("/s/p", "/s/west/r", "a"), none, ""},
		{"sre outside", core.Naming{Dir: "/s", Anywhere: true}, spec("/etc/p", "/sx/r", "a"), none, both},
		{"out again", core.Naming{Dir: "/s", Anywhere: true}, spec("/s/../etc/p", "/s/./r", "a"), none, both},
		{"the directory itself, and a relative name", core.Naming{Dir: "/s/", Anywhere: true}, spec("/s/", "s/r", "a"), none, both},
		{"stored does not help", core.Naming{Dir: "/s"}, spec("/etc/p", "/etc/r", "a"), spec("/etc/p", "/etc/r", "a"), both},
		{"own region", core.Naming{Dir: "/s"}, spec("/s/east/p", "/s/east/r", "a"), none, ""},
		{"another region", core.Naming{Dir: "/s"}, spec("/s/west/p", "/s/eastern/r", "a"), none, both},
		{"sre without", core.Naming{Anywhere: true, Look: true}, spec("/etc/p", "/etc/r", "a"), none, ""},
		{"a new password", core.Naming{}, spec("/etc/p", "/etc/r", "a"), none, "redis.password_file"},
		{"another password", core.Naming{}, spec("/etc/q", "/etc/r", "a"), spec("/etc/p", "/etc/r", "a"), "redis.password_file"},
		{"the password elsewhere", core.Naming{}, spec("/etc/p", "/etc/r", "a", "b"), spec("/etc/p", "/etc/r", "a"), "redis.password_file"},
		{"as stored", core.Naming{Look: true}, spec("/etc/p", "/etc/r", "a"), spec("/etc/p", "/etc/r", "a"), ""},
		{"no password, elsewhere", core.Naming{Look: true}, spec("", "/etc/r", "b"), spec("/etc/p", "/etc/r", "a"), ""},
		{"looked at", core.Naming{Look: true}, spec("", "/etc/x", "a"), spec("", "/etc/r", "a"), "shard.reader_dsn_file"},
	} {
		var got []string
		for _, v := range r.n.Refuses(r.is, r.stored) {
			got = append(got, v.Field)
			if !strings.Contains(v.Rule, "must") {
				t.Errorf("%s: the rule of %s is %q", r.name, v.Field, v.Rule)
			}
		}
		if strings.Join(got, " ") != r.fields {
			t.Errorf("%s: refused %v, want %q", r.name, got, r.fields)
		}
	}
}
