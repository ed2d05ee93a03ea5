package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with the configuration.
type Problem struct {
	Key    string // dotted key; the spelling that was given, if it is no key
	Rule   string // what has to hold
	Source string // "flag --x", "environment CELLQUOTA_X", "file f.yaml:3", "default"; "" if absent
}

func (p Problem) String() string {
	if p.Source == "" {
		return p.Key + ": " + p.Rule
	}
	return fmt.Sprintf("%s: %s (%s)", p.Key, p.Rule, p.Source)
}

// Problems is the error of a configuration that cannot be used: all of them, in
// order of their keys.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps)+1)
	lines = append(lines, fmt.Sprintf("configuration: %d problem(s):", len(ps)))
	for _, p := range ps {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// ErrHandled is returned by Load when --help or --print-config was given: the
// answer has been written, and the program exits 0 without starting.
var ErrHandled = errors.New("config: the question was answered")

// report collects problems without repeating one.
type report struct{ all Problems }

func (r *report) add(key, rule, source string) {
	p := Problem{key, rule, source}
	if !slices.Contains(r.all, p) {
		r.all = append(r.all, p)
	}
}

// has tells whether key has a problem already, so that a follow-up is not told.
func (r *report) has(key string) bool {
	return slices.ContainsFunc(r.all, func(p Problem) bool { return p.Key == key })
}

func (r *report) err() error {
	if len(r.all) == 0 {
		return nil
	}
	slices.SortStableFunc(r.all, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return r.all
}
