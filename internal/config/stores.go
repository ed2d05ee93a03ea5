package config

import (
	"net"
	"strings"
)

// plainText is the one rule of all listeners and peers.
const plainText = "plain text is for dev: true on loopback"

// StoreTLS names the files of a client of a store. With ca_file the connection is encrypted; the other two
// are given together where the store asks its clients for certificates.
type StoreTLS struct {
	CAFile     string `config:"ca_file" default:"" doc:"authorities that sign the servers' certificates, PEM; empty: plain text, which is refused unless dev and on loopback"`
	CertFile   string `config:"cert_file" default:"" doc:"certificate chain that is shown to the servers, PEM"`
	KeyFile    string `config:"key_file" default:"" doc:"private key of that certificate, PEM"`
	ServerName string `config:"server_name" default:"" doc:"the name that every server's certificate must have; empty: the host that is dialled"`
}

// Enabled reports whether the connection is encrypted.
func (t StoreTLS) Enabled() bool { return t.CAFile != "" }

// Check: plain text stays on this machine and is for development, and a certificate has its key. at is the
// name of the keys, "etcd.tls"; addrs are the servers.
func (t StoreTLS) Check(problem func(key, rule string), at string, dev bool, addrs []string) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		problem(at+".cert_file", "must be given together with key_file")
	}
	if t.CAFile != "" {
		return
	}
	if t.CertFile != "" || t.ServerName != "" {
		problem(at+".ca_file", "must be given together with the other keys of "+at)
		return
	}
	for _, addr := range addrs {
		if !Loopback(addr) {
			problem(at+".ca_file", "is required: "+plainText+", and "+addr+" is not")
			return
		}
	}
	if !dev {
		problem(at+".ca_file", "is required unless dev: true: "+plainText)
	}
}

// Loopback tells whether an address host:port, perhaps with a scheme, is surely on this machine.
func Loopback(addr string) bool {
	if _, rest, found := strings.Cut(addr, "://"); found {
		addr, _, _ = strings.Cut(rest, "/")
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]") // a URL may do without a port
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Encrypted tells whether what is sent to a URL is encrypted, or may go without: on loopback, with dev.
func Encrypted(url string, dev bool) bool {
	return strings.HasPrefix(url, "https://") || dev && Loopback(url)
}

// SASL is a login at the brokers.
type SASL struct {
	Mechanism    string `config:"mechanism" default:"none" oneof:"none,PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" doc:"how this process logs in to the brokers"`
	User         string `config:"user" default:"" doc:"as whom"`
	PasswordFile string `config:"password_file" default:"" doc:"file with the password, read at every login"`
}

// Check: a login has a name and a password. at is the name of the keys, "kafka.sasl".
func (l SASL) Check(problem func(key, rule string), at string) {
	if l.Mechanism == "none" || l.Mechanism == "" {
		if l.User != "" || l.PasswordFile != "" {
			problem(at+".mechanism", "must be given together with user and password_file")
		}
		return
	}
	if l.User == "" {
		problem(at+".user", "must be given together with mechanism")
	}
	if l.PasswordFile == "" {
		problem(at+".password_file", "must be given together with mechanism")
	}
}
