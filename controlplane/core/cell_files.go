package core

import (
	"path"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// SecretFile is a file of a cell's spec that the control plane itself reads. What
// only the cell's processes read (shard.dsn_file) is none.
type SecretFile struct {
	Field, Path string
	// To are the addresses of the spec that are shown the content; nil: nobody is. A
	// shard's address is in its file, and not the caller's to choose.
	To []string
}

// SecretFiles lists the files that the spec names, in the order of cell.yaml.
func (s CellSpec) SecretFiles() []SecretFile {
	files := []SecretFile{
		{Field: "redis.password_file", Path: s.Redis.PasswordFile, To: s.Redis.Addrs},
		{Field: "redis.tls.ca_file", Path: s.Redis.TLS.CAFile},
		{Field: "redis.tls.cert_file", Path: s.Redis.TLS.CertFile, To: s.Redis.Addrs},
		{Field: "redis.tls.key_file", Path: s.Redis.TLS.KeyFile},
		{Field: "kafka.tls.ca_file", Path: s.Kafka.TLS.CAFile},
		{Field: "kafka.tls.cert_file", Path: s.Kafka.TLS.CertFile, To: s.Kafka.Brokers},
		{Field: "kafka.tls.key_file", Path: s.Kafka.TLS.KeyFile},
		{Field: "kafka.sasl.password_file", Path: s.Kafka.SASL.PasswordFile, To: s.Kafka.Brokers},
		{Field: "shard.reader_dsn_file", Path: s.Shard.ReaderDSNFile},
		{Field: "shard.fencer_dsn_file", Path: s.Shard.FencerDSNFile},
	}
	return slices.DeleteFunc(files, func(f SecretFile) bool { return f.Path == "" })
}

// Naming is what decides which files a caller may have a cell's spec name.
type Naming struct {
	// Dir is the control plane's secrets_dir; "": there is none.
	Dir string
	// Anywhere: the caller may name any file that the rule of Dir allows; else only
	// those of the cell's region.
	Anywhere bool
	// Look: the files are about to be read for the caller, and not only stored.
	Look bool
}

// Refuses gives the fields that may not name what they do, with the rule. stored is
// the cell as it is; zero: there is none. Whoever chooses both the file and the
// address has the file's content, so:
//
//	secrets_dir   who               may name
//	set           an sre            what is below it
//	set           everybody else    what is below secrets_dir/REGION of the spec
//	none          an sre            anything
//	none          everybody else    what is shown to nobody; and what the stored cell
//	                                names, shown to nobody else than it is now. When
//	                                it is looked at, only the stored cell's
func (n Naming) Refuses(s, stored CellSpec) (v []rpcstatus.Violation) {
	before := map[string]SecretFile{}
	for _, f := range stored.SecretFiles() {
		before[f.Field] = f
	}
	for _, f := range s.SecretFiles() {
		if rule := n.rule(f, before[f.Field], s.Region); rule != "" {
			v = append(v, rpcstatus.Violation{Field: f.Field, Rule: rule})
		}
	}
	return v
}

func (n Naming) rule(f, stored SecretFile, region string) string {
	switch same := f.Path == stored.Path && slices.Equal(f.To, stored.To); {
	case n.Dir != "" && n.Anywhere:
		return outside(f.Path, n.Dir, "must be below secrets_dir")
	case n.Dir != "":
		return outside(f.Path, path.Join(n.Dir, region), "must be below the directory of the cell's region in secrets_dir")
	case n.Anywhere || same || f.To == nil && !n.Look:
		return ""
	case f.To == nil:
		return "must be the stored cell's: only an sre has other files read"
	default:
		return "must be the stored cell's, shown to nobody else than it is now: without secrets_dir only an sre has other files read, or this one sent elsewhere"
	}
}

// outside gives the rule for a name that does not lie below dir.
func outside(name, dir, rule string) string {
	if !path.IsAbs(name) || path.Clean(name) != name || !strings.HasPrefix(name, strings.TrimSuffix(path.Clean(dir), "/")+"/") {
		return rule
	}
	return ""
}
