package edge

import (
	"time"

	"github.com/cellquota/cellquota/internal/config"
)

// Config is everything an edge can be told.
type Config struct {
	config.Common

	HTTPAddr string `config:"http_addr" default:"127.0.0.1:8080" min:"1" doc:"where customers and the payment channel call, host:port"`
	EdgeID   string `config:"edge_id" default:"" doc:"name of this process among the edges; empty: host, pid and a random part"`

	TrustDomain  string        `config:"trust_domain" default:"cellquota" min:"1" doc:"DOMAIN of the certificates that cells and control plane must show: spiffe://DOMAIN/cell/ID, /controlplane/NAME"`
	ControlPlane ControlPlane  `config:"control_plane"`
	Identity     Identity      `config:"identity"`
	KeysDir      string        `config:"keys_dir" required:"true" doc:"directory with permit/, receipt/ and payment/, one file per key"`
	ClockOffset  time.Duration `config:"clock_offset" default:"0s" dev:"true" doc:"shifts this process's idea of now; only with dev"`

	Admit          Admit         `config:"admit"`
	SoldOut        SoldOut       `config:"soldout"`
	Risk           Risk          `config:"risk"`
	RequestTimeout time.Duration `config:"request_timeout" default:"3s" min:"10ms" max:"1m" doc:"longest wait for a cell's answer"`
	WaitMax        time.Duration `config:"wait_max" default:"10s" min:"0s" max:"1m" doc:"longest long poll of a request's status"`
	Limits         Limits        `config:"limits"`
	HTTP           HTTP          `config:"http"`
	Payment        Payment       `config:"payment"`
	TrustedProxies []string      `config:"trusted_proxies" default:"" doc:"addresses and prefixes of proxies whose X-Forwarded-For is believed"`
	CORS           CORS          `config:"cors"`
}

// ControlPlane says where routes come from.
type ControlPlane struct {
	Addrs []string `config:"addrs" required:"true" min:"1" doc:"gRPC addresses of control-plane replicas"`
}

// Identity says whose tokens are accepted.
type Identity struct {
	Issuer     string `config:"issuer" required:"true" doc:"iss of identity tokens"`
	Audience   string `config:"audience" required:"true" doc:"aud that identity tokens must name"`
	SecretFile string `config:"hs256_secret_file" default:"" doc:"file with the shared secret of HS256; this or jwks_url"`
	JWKSURL    string `config:"jwks_url" default:"" doc:"where the identity provider's public keys are; this or hs256_secret_file"`
}

// Check: whatever comes from another machine, or goes there, is encrypted.
func (c Config) Check(problem func(key, rule string)) {
	if c.HTTP.CertFile == "" && (!c.Dev || !config.Loopback(c.HTTPAddr)) {
		problem("http.cert_file", "is required unless dev: true and http_addr is on loopback: plain HTTP does not leave this machine")
	}
	if c.Risk.URL != "" && !config.Encrypted(c.Risk.URL, c.Dev) {
		problem("risk.url", "must begin with https:// unless dev: true and on loopback: it is told who buys what")
	}
	if c.Identity.JWKSURL != "" && !config.Encrypted(c.Identity.JWKSURL, c.Dev) {
		problem("identity.jwks_url", "must begin with https:// unless dev: true and on loopback: whoever answers there can make customers")
	}
}

// Check binds the two ways of verifying to each other.
func (i Identity) Check(problem func(key, rule string)) {
	if (i.SecretFile == "") == (i.JWKSURL == "") {
		problem("identity.hs256_secret_file", "exactly one of hs256_secret_file and jwks_url must be set")
	}
}

// Admit bounds what is on its way to one cell.
type Admit struct {
	BatchMax    int           `config:"batch_max" default:"256" min:"1" max:"1000" doc:"asks in one message to a cell"`
	BatchWait   time.Duration `config:"batch_wait" default:"1ms" min:"0s" max:"1ms" doc:"longest wait of the first ask of a batch"`
	InflightMax int           `config:"inflight_max" default:"8192" min:"1" max:"1000000" doc:"asks on their way to one cell; more are answered THROTTLED"`
	Streams     int           `config:"streams" default:"2" min:"1" max:"16" doc:"streams to each process of a cell"`
}

// SoldOut bounds what is remembered about empty cells.
type SoldOut struct {
	TTL time.Duration `config:"ttl" default:"500ms" min:"0s" max:"1m" doc:"how long a cell's word that its stock is 0 is believed"`
}

// Limits are the edge's own ceilings, whatever a campaign says.
type Limits struct {
	UserRate     float64 `config:"user_rate" default:"100" min:"0" doc:"calls per second of one user, by kind of call; 0: no ceiling"`
	UserBurst    int     `config:"user_burst" default:"400" min:"1" doc:"calls of one user that may come at once"`
	RepeatRate   float64 `config:"repeat_rate" default:"10" min:"0" doc:"repeats (Retry-Attempt) per second of one user; 0: no ceiling"`
	RepeatBurst  int     `config:"repeat_burst" default:"50" min:"1" doc:"repeats of one user that may come at once"`
	NetworkRate  float64 `config:"network_rate" default:"0" min:"0" doc:"calls per second of one network address, by kind of call; 0: no ceiling"`
	NetworkBurst int     `config:"network_burst" default:"1000" min:"1" doc:"calls of one network address that may come at once"`
	Buckets      int     `config:"buckets" default:"500000" min:"1" max:"10000000" doc:"rate limits kept in memory; the least used are forgotten"`
	Running      int     `config:"running" default:"20000" min:"1" doc:"calls being answered at once; more are answered THROTTLED"`
	PerUser      int     `config:"per_user" default:"256" min:"0" doc:"requests of one user at once; 0: no bound"`
	PerDevice    int     `config:"per_device" default:"0" min:"0" doc:"requests of one device at once; 0: no bound"`
	PerNetwork   int     `config:"per_network" default:"0" min:"0" doc:"requests from one network address at once, which many people may share; 0: no bound"`
	Waiters      int     `config:"waiters" default:"5000" min:"0" doc:"long polls at once; more are answered without waiting"`
}

// Risk says who judges customers' behaviour, outside of their calls.
type Risk struct {
	URL       string        `config:"url" default:"" doc:"where events of permits, requests and payments are POSTed in batches, and verdicts about users and devices come from; empty: nobody judges"`
	TokenFile string        `config:"token_file" default:"" doc:"file with the bearer token for that address"`
	Timeout   time.Duration `config:"timeout" default:"2s" min:"10ms" max:"1m" doc:"longest time of one such call; no customer waits for it"`
	Queue     int           `config:"queue" default:"10000" min:"1" max:"1000000" doc:"events that wait; more are dropped and counted"`
	Batch     int           `config:"batch" default:"200" min:"1" max:"1000" doc:"events of one call"`
	Wait      time.Duration `config:"wait" default:"200ms" min:"1ms" max:"10s" doc:"longest wait of the first event of a call"`
	Verdicts  int           `config:"verdicts" default:"100000" min:"1" max:"10000000" doc:"verdicts kept in memory; the least used are forgotten"`
}

// HTTP bounds what a client may take of the server.
type HTTP struct {
	MaxConnections int           `config:"max_connections" default:"20000" min:"1" doc:"connections at once; more wait to be accepted"`
	HeaderTimeout  time.Duration `config:"header_timeout" default:"5s" min:"100ms" doc:"longest time to send a call's header"`
	BodyTimeout    time.Duration `config:"body_timeout" default:"10s" min:"100ms" doc:"longest time to send a call, header and body"`
	IdleTimeout    time.Duration `config:"idle_timeout" default:"90s" min:"1s" doc:"how long a connection may be unused"`
	CertFile       string        `config:"cert_file" default:"" doc:"certificate chain that customers see, PEM; empty: plain HTTP, which is refused unless dev and on loopback; what stands in front speaks TLS to us too"`
	KeyFile        string        `config:"key_file" default:"" doc:"private key of that certificate, PEM"`
	MaxStreams     int           `config:"max_streams" default:"100" min:"1" max:"10000" doc:"calls at once on one HTTP/2 connection"`
	DrainDelay     time.Duration `config:"drain_delay" default:"500ms" min:"0s" max:"1m" doc:"how long connections are still taken and told to go away, not ready any more, before a stop refuses new ones; at most a quarter of shutdown_grace is used"`
	MaxHeaderBytes int           `config:"max_header_bytes" default:"16384" min:"1024" max:"1048576" doc:"largest header of a call, in bytes"`
}

// Check: a certificate has its key.
func (h HTTP) Check(problem func(key, rule string)) {
	if (h.CertFile == "") != (h.KeyFile == "") {
		problem("http.cert_file", "must be given together with http.key_file")
	}
}

// Payment bounds the payment channel's messages.
type Payment struct {
	CallbackWindow time.Duration `config:"callback_window" default:"5m" min:"1s" max:"1h" doc:"how far the time of a payment signature may be off"`
}

// CORS says which web pages may call.
type CORS struct {
	Origins []string `config:"origins" default:"" doc:"origins whose scripts may call; * for all"`
}
