package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/config"
)

// panicOf returns what keys panics with, "" if it does not.
func panicOf(keys func() []string) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	keys()
	return ""
}

func TestABrokenStructIsFoundByTheFirstTest(t *testing.T) {
	type untagged struct{ A string }
	type badKey struct {
		A string `config:"Upper"`
	}
	type twins struct {
		A string `config:"a.b_c"`
		B string `config:"a_b.c"`
	}
	type badDefault struct {
		A time.Duration `config:"a" default:"5"`
	}
	type outOfBounds struct {
		A int `config:"a" default:"5" min:"6"`
	}
	type badBound struct {
		A time.Duration `config:"a" min:"6"`
	}
	type badType struct {
		A map[string]int `config:"a"`
	}
	for want, keys := range map[string]func() []string{
		"has no config tag":      config.Keys[untagged],
		"lower_snake":            config.Keys[badKey],
		"are both spelt":         config.Keys[twins],
		"default: must be a dur": config.Keys[badDefault],
		"must be at least 6":     config.Keys[outOfBounds],
		`bound "6"`:              config.Keys[badBound],
		"is not supported":       config.Keys[badType],
		"is not a struct":        config.Keys[int],
	} {
		if got := panicOf(keys); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
