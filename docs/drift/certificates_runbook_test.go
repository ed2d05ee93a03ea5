package drift

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

// TestCertificatesRunbook follows docs/runbooks/certificates.md beside a server that
// never restarts: its commands renew the certificate, then the authority, and a client
// that has watched the files all the time reaches the server after every step.
func TestCertificatesRunbook(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatalf("the page's commands are openssl's; install the package openssl: %v", err)
	}
	page := house(t).read(t, "docs/runbooks/certificates.md")
	renew, authority := blocks(t, page, "Renew a certificate"), blocks(t, page, "Change the authority")
	if len(renew) != 5 || len(authority) != 2 {
		t.Fatalf("the page has %d and %d blocks of commands, this test follows 5 and 2", len(renew), len(authority))
	}
	dir := t.TempDir()
	run := func(commands string) {
		t.Helper()
		cmd := exec.CommandContext(testkit.Deadline(t), "sh", "-e", "-c", commands)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
	}
	made := "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=NAME -keyout NAME.key -out NAME.pem"
	run(strings.ReplaceAll(made, "NAME", "ca"))
	run(strings.ReplaceAll(made, "NAME", "next-ca"))
	request := strings.SplitN(renew[0], "\n", 2)[1] // there is no certificate to look at yet
	run(request + "\n" + renew[1] + "\n" + renew[2] + "\n" + renew[3])

	addr, client := watched(t, dir)
	reached := func(after string) {
		t.Helper()
		conn, err := transport.StoreDialer(client)(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		_ = conn.Close()
	}
	shown := func() { run(strings.ReplaceAll(renew[4], "cell-1.example:7443", addr)) }
	shown()
	reached("the start")

	run(strings.Join(renew[:4], "\n"))
	shown()
	reached("the renewal")

	run(authority[0])
	reached("the second authority came")
	signed := strings.ReplaceAll(renew[1], "-CA ca.pem -CAkey ca.key", "-CA next-ca.pem -CAkey next-ca.key")
	if signed == renew[1] {
		t.Fatal("the page no longer signs by ca.pem and ca.key")
	}
	run(strings.Join([]string{renew[0], signed, renew[2], renew[3]}, "\n"))
	shown()
	reached("the new authority's certificate")
	run(authority[1])
	shown()
	reached("the old authority went")
}

// watched is a server of ours, and a client, that watch the files of a directory.
func watched(t *testing.T, dir string) (addr string, client *transport.TLS) {
	t.Helper()
	files := transport.TLSFiles{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem")}
	identity, err := transport.LoadTLS(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	trusts := files
	trusts.CertFile, trusts.KeyFile, trusts.ServerName = "", "", "localhost"
	if client, err = transport.LoadTLS(trusts, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	o := transport.ServerOptions{TLS: identity}
	l, err := transport.Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	group := lifecycle.New(ctx, slog.New(slog.DiscardHandler))
	group.Go("grpc", transport.Serve(transport.NewServer(o), l))
	t.Cleanup(func() { cancel(); _ = group.Wait(time.Second) })
	return l.Addr().String(), client
}

var fenced = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")

// blocks are the commands of a section, in order.
func blocks(t *testing.T, page, title string) (out []string) {
	t.Helper()
	_, section, found := strings.Cut(page, "\n## "+title+"\n")
	if !found {
		t.Fatalf("no section %q", title)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range fenced.FindAllStringSubmatch(section, -1) {
		var lines []string
		for line := range strings.Lines(m[1]) {
			lines = append(lines, strings.TrimSpace(line))
		}
		out = append(out, strings.Join(lines, "\n"))
	}
	return out
}
