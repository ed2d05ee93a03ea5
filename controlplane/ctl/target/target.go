package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/transport"
)

// Role is what an operator may do.
type Role string

// The roles (contract, section 4).
const (
	RegionOperator  Role = "region-operator"
	CampaignManager Role = "campaign-manager"
	SRE             Role = "sre"
	Viewer          Role = "viewer"
)

// Roles lists them.
var Roles = []string{string(RegionOperator), string(CampaignManager), string(SRE), string(Viewer)}

// ErrNone means that nothing says which platform is meant.
var ErrNone = errors.New("no platform was named")

// ErrConfig is a configuration file or a role that makes no sense.
var ErrConfig = errors.New("invalid configuration")

// ErrNotLocal means that a command needs a local platform and the target is another one.
var ErrNotLocal = errors.New("this needs a local platform (cellquota-dev up)")

// EndpointsVariable names an endpoints file.
const EndpointsVariable = "CELLQUOTA_ENDPOINTS"

// Options say where to look.
type Options struct {
	EndpointsFile string // --endpoints-file
	Context       string // --context
	ConfigFile    string // usually ~/.config/cellquota/config.yaml
	Env           func(string) string
}

// Target is one platform.
type Target struct {
	// Name tells a person which one it is.
	Name          string
	ControlPlanes []string // host:port
	Edges         []string // URLs
	// Local is the endpoints file's content; nil for a platform that is not local.
	Local *platform.Endpoints
	// DataDir of the local platform; "" otherwise.
	DataDir string

	token func(Role) (string, error) // "" without an error: none is needed
	tls   *transport.TLSFiles        // nil: plain text, which stays on this machine
	// trustDomain is that of the control plane's certificate.
	trustDomain string
}

// Find says which platform is meant.
func Find(o Options) (Target, error) {
	switch {
	case o.EndpointsFile != "":
		return fromEndpoints(o.EndpointsFile)
	case o.Context != "":
		return fromContext(o.ConfigFile, o.Context)
	case o.Env(EndpointsVariable) != "":
		return fromEndpoints(o.Env(EndpointsVariable))
	}
	c, err := readConfig(o.ConfigFile)
	if errors.Is(err, os.ErrNotExist) || err == nil && c.Current == "" {
		return Target{}, ErrNone
	}
	if err != nil {
		return Target{}, err
	}
	return fromContext(o.ConfigFile, c.Current)
}

func fromEndpoints(file string) (Target, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return Target{}, fmt.Errorf("endpoints file: %w", err)
	}
	e, err := platform.ReadEndpoints(file)
	if err != nil {
		return Target{}, err
	}
	return local(e, file), nil
}

func local(e platform.Endpoints, file string) Target {
	t := Target{Name: file, Local: &e, DataDir: platform.DataDir(file)}
	for _, c := range e.ControlPlanes {
		t.ControlPlanes = append(t.ControlPlanes, c.GRPC)
	}
	if e.TLS != nil {
		t.tls, t.trustDomain = &transport.TLSFiles{CAFile: e.TLS.CAFile}, defaultTrustDomain
	}
	for _, g := range e.Edges {
		t.Edges = append(t.Edges, g.HTTP)
	}
	t.token = func(r Role) (string, error) {
		if token := e.Operators[string(r)]; token != "" {
			return token, nil
		}
		return "", fmt.Errorf("%w: %s has no token for the role %q", ErrConfig, file, r)
	}
	return t
}

// Endpoints is the local platform's endpoints. ErrNotLocal.
func (t Target) Endpoints() (platform.Endpoints, error) {
	if t.Local == nil {
		return platform.Endpoints{}, fmt.Errorf("%s: %w", t.Name, ErrNotLocal)
	}
	return *t.Local, nil
}

// IdentitySecret signs the customers' tokens of a local platform. ErrNotLocal.
func (t Target) IdentitySecret() ([]byte, error) {
	if t.DataDir == "" {
		return nil, fmt.Errorf("%s: %w", t.Name, ErrNotLocal)
	}
	return secretFile(platform.IdentitySecretFile(t.DataDir))
}

// secretFile reads a secret; one trailing line break is not part of it.
func secretFile(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	for _, end := range []byte("\n\r") {
		if n := len(text); n > 0 && text[n-1] == end {
			text = text[:n-1]
		}
	}
	return text, nil
}
