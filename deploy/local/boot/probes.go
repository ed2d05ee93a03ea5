package boot

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A probe asks once whether a process serves; the supervisor asks again.
type probe = func(context.Context) error

// httpProbe wants 200: /readyz of ours, /health of etcd.
func httpProbe(url string) probe {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(req)
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
func redisProbe(addr string) probe {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1})
		defer client.Close()
		return client.Ping(ctx).Err()
	}
}

func kafkaProbe(addr string) probe {
	return func(ctx context.Context) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(addr))
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
