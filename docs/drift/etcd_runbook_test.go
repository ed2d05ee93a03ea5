package drift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/cellquota/cellquota/internal/testkit"
)

// TestEtcdRunbook follows docs/runbooks/etcd.md on a real etcd that is full: every
// command of etcd's programs on the page has a row here, and those of the NOSPACE
// section are carried out in the page's order until etcd takes writes again. Where
// etcdctl is installed the command itself runs, elsewhere the call that it makes.
func TestEtcdRunbook(t *testing.T) {
	t.Parallel()
	text := house(t).read(t, "docs/runbooks/etcd.md")
	etcd := testkit.EtcdWith(t, 1, func(c *embed.Config) { c.QuotaBackendBytes = 4 << 20 })
	client, ctx := etcd.Client(t), testkit.Deadline(t)
	full := func() error {
		var err error
		for i := 0; err == nil && i < 64; i++ {
			_, err = client.Put(ctx, "/filled", strings.Repeat("x", 256<<10)) // history, not keys: compaction is what helps
		}
		return err
	}
	if err := full(); err == nil {
		t.Fatal("etcd took 16 MiB into 4")
	}
	backup, revision := filepath.Join(t.TempDir(), "backup.db"), int64(0)
	calls := map[string]func() error{
		"snapshot save":   func() error { return save(ctx, client, backup) },
		"endpoint status": func() error { return status(ctx, client, etcd.Endpoint(0), &revision) },
		"compact":         func() error { _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); return err },
		"defrag":          func() error { _, err := client.Defragment(ctx, etcd.Endpoint(0)); return err },
		"alarm disarm":    func() error { _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); return err },
		"alarm list":      func() error { return noAlarm(ctx, client) },
		"member list":     func() error { _, err := client.MemberList(ctx); return err },
		"member remove":   nil, // of the only member: shown, not done
		"member add":      nil,
		"get": func() error {
			_, err := client.Get(ctx, "/cellquota/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			return err
		},
	}
	program, _ := exec.LookPath("etcdctl")
	var done []string
	for _, m := range regexp.MustCompile("(?m)(?:^ *|`)etcdctl ((?:--endpoints=\\S+ )?)([a-z]+(?: [a-z]+)?)([^`\n]*)").FindAllStringSubmatch(text, -1) {
		name := strings.TrimSpace(m[2])
		call, known := calls[name]
		if !known {
			t.Errorf("the page shows etcdctl %s%s: no such command, or it lacks a row here", m[2], m[3])
			continue
		}
		done = append(done, name)
		if call == nil {
			continue
		}
		if program != "" && name != "snapshot save" && name != "endpoint status" { // whose answers are used below
			line := strings.Fields(strings.ReplaceAll(m[2]+m[3], "REVISION", fmt.Sprint(revision)))
			cmd := exec.CommandContext(ctx, program, append([]string{"--endpoints=" + etcd.Endpoint(0)}, line...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("etcdctl %s: %v: %s", line, err, out)
			}
			continue
		}
		if err := call(); err != nil {
			t.Errorf("etcdctl %s: %v", name, err)
		}
	}
	if _, err := client.Put(ctx, "/room", "again"); err != nil {
		t.Errorf("after the page, a write: %v", err)
	}
	if info, err := os.Stat(backup); err != nil || info.Size() == 0 {
		t.Errorf("the backup: %v", err)
	}
	const order = "endpoint status compact defrag alarm disarm alarm list"
	if !strings.Contains(strings.Join(done, " "), order) {
		t.Errorf("the page's order is %v", done)
	}
}

func save(ctx context.Context, client *clientv3.Client, to string) error {
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(from)
	return errors.Join(err, from.Close(), os.WriteFile(to, content, 0o600))
}

func status(ctx context.Context, client *clientv3.Client, endpoint string, revision *int64) error {
	s, err := client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	*revision = s.Header.Revision
	return nil
}

func noAlarm(ctx context.Context, client *clientv3.Client) error {
	alarms, err := client.AlarmList(ctx)
	if err == nil && len(alarms.Alarms) > 0 {
		err = fmt.Errorf("alarms %v stand", alarms.Alarms)
	}
	return err
}
