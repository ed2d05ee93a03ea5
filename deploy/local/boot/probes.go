package boot

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A probe asks once whether a process serves; the supervisor asks again.
type probe = func(context.Context) error

// httpProbe wants 200: /readyz of ours, /health of etcd.
func (b *boot) httpProbe(at string) probe {
	url, client := "http://"+at, http.DefaultClient
	if b.tls != nil {
		url, client = "https://"+at, &http.Client{Transport: &http.Transport{TLSClientConfig: b.tls, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}}
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, answer.Status)
		}
		return nil
	}
}

// redisProbe wants PONG, which a server that still loads does not say.
func (b *boot) redisProbe(addr string) probe {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1, TLSConfig: b.tls})
		defer client.Close()
		return client.Ping(ctx).Err()
	}
}

func (b *boot) kafkaProbe(addr string) probe {
	return func(ctx context.Context) error {
		options := []kgo.Opt{kgo.SeedBrokers(addr)}
		if b.tls != nil {
			options = append(options, kgo.DialTLSConfig(b.tls))
		}
		client, err := kgo.NewClient(options...)
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Ping(ctx)
	}
}

func postgresProbe(dsn string) probe {
	return func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
}
