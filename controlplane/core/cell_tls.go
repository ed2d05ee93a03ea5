package core

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// StoreTLS names the files by which a store's servers are known; the zero value is
// plain text.
type StoreTLS struct {
	CAFile     string // authorities that sign the servers' certificates
	CertFile   string // what is shown to the servers, with KeyFile; "": nothing
	KeyFile    string
	ServerName string // the name that certificates must have; "": the host that is dialled
}

// Enabled: the connection is encrypted.
func (t StoreTLS) Enabled() bool { return t.CAFile != "" }

// KafkaSASL is a login at the brokers; the zero value is none.
type KafkaSASL struct {
	Mechanism    string // one of SASLMechanisms
	User         string
	PasswordFile string
}

// SASLMechanisms are the ways of logging in to Kafka by a password.
var SASLMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// Encrypted gives each store that would be spoken to in plain text where it must not:
// off this machine never, and on it only with dev. What a shard's address says is
// judged where the file is read.
func (s CellSpec) Encrypted(dev bool) []rpcstatus.Violation {
	return append(Encrypted("redis.tls", s.Redis.TLS, dev, s.Redis.Addrs), Encrypted("kafka.tls", s.Kafka.TLS, dev, s.Kafka.Brokers)...)
}

// Encrypted is the same of one store; at is the path of its block.
func Encrypted(at string, t StoreTLS, dev bool, addrs []string) []rpcstatus.Violation {
	var f faults
	if t.Enabled() {
		return nil
	}
	field := at + ".ca_file"
	const rule = "must name the authorities of the servers' certificates: plain text is for dev: true and loopback only; "
	if at := slices.IndexFunc(addrs, func(a string) bool { return !loopback(a) }); at >= 0 {
		f.add(true, field, rule+addrs[at]+" is another machine")
		return f
	}
	f.add(!dev, field, rule+"this control plane runs without dev")
	return f
}

// loopbackGrammar is what is surely on this machine; 127.example is not.
var loopbackGrammar = regexp.MustCompile(`^(localhost|127(\.[0-9]{1,3}){3}|\[::1\]):[0-9]+$`)

// loopback tells whether an address host:port is surely on this machine.
func loopback(addr string) bool { return loopbackGrammar.MatchString(addr) }

// storeTLS checks names of files; that a certificate has its key and needs authorities.
func (f *faults) storeTLS(at string, t StoreTLS) {
	for _, file := range []struct{ key, path string }{{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}} {
		if file.path != "" {
			f.file(at+"."+file.key, file.path)
		}
	}
	f.add((t.CertFile == "") != (t.KeyFile == ""), at+".cert_file", "must be given together with key_file")
	f.add(t.CAFile == "" && t != StoreTLS{}, at+".ca_file", "must be given together with the other keys of "+at)
	f.add(len(t.ServerName) > 253 || strings.ContainsAny(t.ServerName, " \t\r\n/"), at+".server_name", "must be the name in the servers' certificates, at most 253 bytes")
}

func (f *faults) sasl(at string, l KafkaSASL) {
	if l == (KafkaSASL{}) {
		return
	}
	f.add(!slices.Contains(SASLMechanisms, l.Mechanism), at+".mechanism", fmt.Sprintf("must be one of %s", strings.Join(SASLMechanisms, ", ")))
	f.add(l.User == "" || len(l.User) > 256, at+".user", "must have 1 to 256 bytes")
	f.file(at+".password_file", l.PasswordFile)
}
