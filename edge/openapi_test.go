package edge

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/cellquota/cellquota/edge/api"
)

// described is the document that every answer of this package's tests is held against.
var described = sync.OnceValues(func() (routers.Router, error) {
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder)
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// conforms checks a real answer against the document, if it describes the call at all.
func (r *rig) conforms(req *http.Request, res *http.Response, body string) {
	r.t.Helper()
	if _, err := r.described(req, res, body); err != nil {
		r.t.Errorf("%s %s answers %d, which is not as openapi.yaml has it: %v\n%s", req.Method, req.URL.Path, res.StatusCode, err, body)
	}
}

// described is the operation that an answer belongs to, "" for none, and what is wrong with the answer.
func (r *rig) described(req *http.Request, res *http.Response, body string) (operation string, err error) {
	r.t.Helper()
	router, err := described()
	if err != nil {
		r.t.Fatalf("openapi.yaml: %v", err)
	}
	route, params, err := router.FindRoute(&http.Request{Method: req.Method, URL: &url.URL{Path: req.URL.Path, RawPath: req.URL.RawPath}})
	if err != nil {
		return "", nil //nolint:nilerr // a path or a method that does not exist
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Body: io.NopCloser(strings.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	return route.Operation.OperationID, openapi3filter.ValidateResponse(context.Background(), in)
}

// The document is served as it is in the repository.
func TestOpenAPIServed(t *testing.T) {
	r := start(t)
	want, err := os.ReadFile("api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	res, body := r.raw(http.MethodGet, "/openapi.yaml", "", nil)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/yaml" || !bytes.Equal([]byte(body), want) {
		t.Fatalf("served %d, %s, %d bytes; want %d bytes", res.StatusCode, res.Header.Get("Content-Type"), len(body), len(want))
	}
}

// Every code of the catalogue is in the document, and the other way round.
func TestOpenAPICodes(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[api.Code]bool{}
	for _, v := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		listed[api.Code(v.(string))] = true
	}
	for code := range api.Catalog {
		if !listed[code] {
			t.Errorf("%s is not in openapi.yaml", code)
		}
	}
	if len(listed) != len(api.Catalog) {
		t.Errorf("openapi.yaml has %d codes, the catalogue %d", len(listed), len(api.Catalog))
	}
}
