package target

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

func endpoints(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoints.json")
	e := platform.Endpoints{
		ControlPlanes: []platform.ControlPlane{{GRPC: "127.0.0.1:1"}}, Edges: []platform.Edge{{HTTP: "http://127.0.0.1:2"}},
		Operators: map[string]string{"sre": "secret-sre"},
	}
	if err := e.Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func env(pairs ...string) func(string) string {
	return func(key string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFlagBeatsContextBeatsEnvironmentBeatsCurrent(t *testing.T) {
	a, b, c, d := endpoints(t), endpoints(t), endpoints(t), endpoints(t)
	config := write(t, "current: mine\ncontexts:\n  mine: {endpoints_file: "+d+"}\n  other: {endpoints_file: "+b+"}\n")
	for _, step := range []struct {
		o    Options
		want string
	}{
		{Options{EndpointsFile: a, Context: "other", Env: env(EndpointsVariable, c)}, a},
		{Options{Context: "other", Env: env(EndpointsVariable, c)}, b},
		{Options{Env: env(EndpointsVariable, c)}, c},
		{Options{Env: env()}, d},
	} {
		step.o.ConfigFile = config
		got, err := Find(step.o)
		if err != nil || got.Name != step.want || got.DataDir != filepath.Dir(step.want) {
			t.Errorf("%+v: got %q in %q, %v; want %q", step.o, got.Name, got.DataDir, err, step.want)
		}
	}
}

func TestFaultsNameThemselves(t *testing.T) {
	for name, step := range map[string]struct {
		config string
		o      Options
		is     error
		says   string
	}{
		"nothing":         {"", Options{}, ErrNone, ""},
		"no current":      {"contexts: {a: {control_planes: ['x:1']}}", Options{}, ErrNone, ""},
		"no such context": {"contexts: {a: {control_planes: ['x:1']}}", Options{Context: "b"}, ErrConfig, `no context "b"; it has a`},
		"unknown key":     {"contexts: {a: {control_plane: ['x:1']}}", Options{Context: "a"}, ErrConfig, "control_plane"},
		"empty context":   {"contexts: {a: {edges: [x]}}", Options{Context: "a"}, ErrConfig, "contexts.a"},
		"no platform":     {"", Options{EndpointsFile: "nowhere/endpoints.json"}, platform.ErrNotRunning, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			step.o.ConfigFile = write(t, step.config)
			if step.config == "" {
				step.o.ConfigFile = filepath.Join(t.TempDir(), "none")
			}
			step.o.Env = env()
			_, err := Find(step.o)
			if !errors.Is(err, step.is) || !strings.Contains(err.Error(), step.says) {
				t.Errorf("got %v; want %v saying %q", err, step.is, step.says)
			}
		})
	}
}

func TestTokensAreTheRolesOwn(t *testing.T) {
	local, err := Find(Options{EndpointsFile: endpoints(t), Env: env()})
	if err != nil {
		t.Fatal(err)
	}
	if token, err := local.token(SRE); token != "secret-sre" || err != nil {
		t.Errorf("sre: %q %v", token, err)
	}
	if _, err := local.Dial(Viewer); !errors.Is(err, ErrConfig) {
		t.Errorf("viewer has no token: %v", err)
	}
	own, all := write(t, "mine\n"), write(t, "everyone's\n")
	far, err := Find(Options{Context: "far", Env: env(), ConfigFile: write(t, "contexts: {far: {control_planes: ['x:1'], token_file: "+all+", token_files: {sre: "+own+"}}}")})
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[Role]string{SRE: "mine", Viewer: "everyone's"} {
		if token, err := far.token(role); token != want || err != nil {
			t.Errorf("%s: %q %v", role, token, err)
		}
	}
	if _, err := far.Endpoints(); !errors.Is(err, ErrNotLocal) {
		t.Errorf("far is not local: %v", err)
	}
	if _, err := far.IdentitySecret(); !errors.Is(err, ErrNotLocal) {
		t.Errorf("far has no secret here: %v", err)
	}
}

func TestPlainTextStaysOnThisMachine(t *testing.T) {
	far, err := Find(Options{Context: "far", Env: env(), ConfigFile: write(t, "contexts: {far: {control_planes: ['192.0.2.1:1'], token_file: "+write(t, "x")+"}}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Dial(SRE); err == nil {
		t.Error("a token was about to be sent in plain text over the network")
	}
}
