package ctl

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readAtMost reads in to its end; longer than limit is an error.
func readAtMost(in io.Reader, limit int64) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return "", err
	}
	if int64(len(text)) > limit {
		return "", errTooLong
	}
	return string(text), nil
}

// maxUnits is the most that a number of units may be.
const maxUnits = 1_000_000_000

// units reads N of a quota command.
func units(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > maxUnits {
		return 0, usage("N: %q: must be a whole number from 1 to %d", s, maxUnits)
	}
	return int32(n), nil
}

// confirm asks a person; true at once where nobody is there or --yes says so.
func (c *cli) confirm(question string) error {
	if c.yes || !c.Terminal {
		return nil
	}
	fmt.Fprintf(c.Err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(c.In).ReadString('\n') // no answer is no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errRefused
}
