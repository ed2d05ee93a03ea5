package apachekafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Config is one broker that is a cluster of its own.
type Config struct {
	DataDir string
	// Addr and ControllerAddr are 127.0.0.1:port; nothing else is listened on.
	Addr           string
	ControllerAddr string
	// ClusterID is 22 characters of unpadded URL-safe base64, given to an empty
	// DataDir once.
	ClusterID string
	// Java is the program; Jars the folder with the broker's classes.
	Java string
	Jars string
	// BrokerConfigs are Kafka's broker settings, such as message.max.bytes; they win
	// over ours.
	BrokerConfigs map[string]string
	// Log receives what formatting says; the broker itself writes on stderr.
	Log io.Writer
}

// heap is the broker's: enough for a cell's topics on two cores.
const heap = "-Xmx512m"

// Run does not return unless it failed: the process becomes the broker.
func Run(ctx context.Context, c Config) error {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{c.properties(): c.brokerProperties(), c.logging(): loggingProperties} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	java, err := exec.LookPath(c.Java)
	if err != nil {
		return fmt.Errorf("java: %w; run deploy/local/setup kafka", err)
	}
	if err := c.format(ctx, java); err != nil {
		return err
	}
	args := append([]string{"java"}, c.javaArgs("kafka.Kafka", c.properties())...)
	return fmt.Errorf("become the broker: %w", syscall.Exec(java, args, os.Environ()))
}

// format gives an empty data directory its cluster id. A repeat looks only:
// the tool writes meta.properties last, so what was cut short is done again.
func (c Config) format(ctx context.Context, java string) error {
	switch id, err := c.formatted(); {
	case err != nil:
		return err
	case id == c.ClusterID:
		return nil
	case id != "":
		return fmt.Errorf("%s belongs to cluster %s, not %s", c.DataDir, id, c.ClusterID)
	}
	if err := os.RemoveAll(c.records()); err != nil {
		return err
	}
	args := c.javaArgs("kafka.tools.StorageTool", "format", "--standalone", "-t", c.ClusterID, "-c", c.properties())
	cmd := exec.CommandContext(ctx, java, args...)
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("format %s: %w", c.DataDir, err)
	}
	if id, err := c.formatted(); err != nil || id != c.ClusterID {
		return errors.Join(err, fmt.Errorf("format %s: no cluster id in it", c.DataDir))
	}
	return nil
}

func (c Config) javaArgs(class string, args ...string) []string {
	return append([]string{
		heap, "-Dlog4j2.configurationFile=" + c.logging(), "-cp", filepath.Join(c.Jars, "*"), class,
	}, args...)
}

func (c Config) properties() string { return filepath.Join(c.DataDir, "server.properties") }
func (c Config) logging() string    { return filepath.Join(c.DataDir, "log4j2.properties") }
func (c Config) records() string    { return filepath.Join(c.DataDir, "records") }
