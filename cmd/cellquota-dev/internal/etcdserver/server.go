// Package etcdserver runs one etcd member for the local platform.
//
// Job: a real etcd, embedded so that a fresh machine needs no download, in a
// process of its own, so that killing and pausing it is the real fault.
//
// Promise: it listens on the given loopback addresses only, writes with fsync,
// and keeps its history for as long as it is told to. Its metrics are in the
// process-wide registry, which is why nothing else of ours runs in its process.
//
// Neighbours: `cellquota-dev etcd` is its only caller. Beside tests nothing
// else imports the embedded server.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"
)

// Config is one member of a cluster.
type Config struct {
	Name       string
	DataDir    string
	ClientAddr string // host:port
	PeerAddr   string // host:port
	// Members are all members, this one too: name → peer address. Empty: this one
	// alone.
	Members map[string]string
	// ClusterToken goes into the cluster's id at its first start.
	ClusterToken string
	// AutoCompaction is how long history is kept, a duration such as 24h; 0
	// keeps all of it.
	AutoCompaction string
	// QuotaBytes bounds the data; at the bound etcd raises NOSPACE and refuses
	// writes. 0 is etcd's default of 2 GiB.
	QuotaBytes int64
	// CertFile, KeyFile and CAFile encrypt; callers, and the other members, must show a
	// certificate of these authorities. "": plain text.
	CertFile, KeyFile, CAFile string
	// LogLevel is etcd's: debug, info, warn, error.
	LogLevel string
}

// Run serves until ctx ends or the member fails.
func Run(ctx context.Context, c Config) error {
	member, err := embed.StartEtcd(c.embed())
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer member.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-member.Server.StopNotify():
		return errors.New("etcd stopped by itself")
	}
}

func (c Config) embed() *embed.Config {
	client := []url.URL{{Scheme: c.scheme(), Host: c.ClientAddr}}
	peer := []url.URL{{Scheme: c.scheme(), Host: c.PeerAddr}}
	e := embed.NewConfig()
	if c.CertFile != "" {
		e.ClientTLSInfo.CertFile, e.ClientTLSInfo.KeyFile, e.ClientTLSInfo.TrustedCAFile, e.ClientTLSInfo.ClientCertAuth = c.CertFile, c.KeyFile, c.CAFile, true
		e.PeerTLSInfo = e.ClientTLSInfo
	}
	e.Name, e.Dir = c.Name, c.DataDir
	e.ListenClientUrls, e.AdvertiseClientUrls = client, client
	e.ListenPeerUrls, e.AdvertisePeerUrls = peer, peer
	e.InitialCluster = c.cluster()
	e.InitialClusterToken = c.ClusterToken
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModePeriodic, c.AutoCompaction
	e.QuotaBackendBytes = c.QuotaBytes
	e.LogLevel, e.LogOutputs = c.LogLevel, []string{"stderr"}
	return e
}

func (c Config) scheme() string {
	if c.CertFile == "" {
		return "http"
	}
	return "https"
}

// cluster names the members as etcd wants it, in order of names.
func (c Config) cluster() string {
	members := c.Members
	if len(members) == 0 {
		members = map[string]string{c.Name: c.PeerAddr}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		list = append(list, name+"="+c.scheme()+"://"+members[name])
	}
	return strings.Join(list, ",")
}
