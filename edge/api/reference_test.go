package api

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var update = flag.Bool("update", false, "write docs/reference/http-codes.md anew")

// The reference page says what the catalogue says.
func TestReference(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference", "http-codes.md")
	want := reference()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the catalogue says; run go test ./edge/api -run TestReference -update", path)
	}
}

// reference renders the page from the catalogue.
func reference() string {
	codes := slices.SortedFunc(maps.Keys(Catalog), func(a, b Code) int {
		return cmp.Or(cmp.Compare(Catalog[a].Status, Catalog[b].Status), cmp.Compare(a, b))
	})
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("| status | code | permanent | same id | wait | tell a person |\n|---|---|---|---|---|---|\n")
	for _, c := range codes {
		e := Catalog[c]
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s | **%s.** %s |\n", e.Status, c, yes(e.Permanent, "yes", "no"), sameID(e, "yes", "no", "–"), wait(c, e, "as Retry-After says", "–"), e.Title[English], e.Tell[English])
	}
	b.WriteString(referenceMiddle)
	b.WriteString("| 状态码 | 代码 | 永久 | 同一编号 | 等待 | 给用户的说明 |\n|---|---|---|---|---|---|\n")
	for _, c := range codes {
		e := Catalog[c]
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s | **%s。** %s |\n", e.Status, c, yes(e.Permanent, "是", "否"), sameID(e, "是", "否", "–"), wait(c, e, "按 Retry-After", "–"), e.Title[Chinese], e.Tell[Chinese])
	}
	return b.String()
}

func yes(v bool, y, n string) string {
	if v {
		return y
	}
	return n
}

func sameID(e Entry, y, n, none string) string {
	if e.Permanent {
		return none
	}
	return yes(e.SameID, y, n)
}

// wait names the catalogue's time; where it depends, the answer itself says it.
func wait(c Code, e Entry, depends, none string) string {
	switch {
	case c == NotStarted || c == RateLimited:
		return depends
	case e.Wait == 0:
		return none
	default:
		return "≥ " + e.Wait.Round(100*time.Millisecond).String()
	}
}

const referenceHead = `# HTTP codes of the edge

This page is made from ` + "`edge/api/catalog.go`" + `; do not edit it by hand
(` + "`go test ./edge/api -run TestReference -update`" + `). [中文](#http-错误码中文)

Every error is ` + "`application/problem+json`" + ` (RFC 9457) with ` + "`code`" + `, which scripts compare;
` + "`title`" + ` and ` + "`detail`" + ` are for people and follow ` + "`Accept-Language`" + ` (en, zh-CN).

- **permanent**: the same request gets the same answer for ever; do not repeat it.
- **same id**: whoever tries again does so with the same ` + "`request_id`" + ` (or ` + "`payment_id`" + `). A new
  id is a new request, and the old one may still have been admitted.
- **wait**: the least time; the answer's ` + "`Retry-After`" + ` (whole seconds) and ` + "`retry_after_ms`" + ` are
  jittered and are what counts.

What to do, in five rules:

1. No answer at all, ` + "`NOT_READY`" + ` or ` + "`INTERNAL`" + `: nobody knows whether it happened. Repeat with the
   same id and the header ` + "`Retry-Attempt: n`" + `, n counting up from 1. Such a repeat passes the window,
   the permit's expiry and the sold-out shortcut; the home cell answers it, replay first.
2. Any other answer that is not permanent: wait as it says, repeat with the same id, and leave
   ` + "`Retry-Attempt`" + ` as it was.
3. ` + "`PERMIT_INVALID`" + `: claim another permit, keep the request id.
4. ` + "`202`" + ` is not a purchase. It is one when the request's state is ` + "`PAID`" + `. Keep the receipt: with
   it the status is never "not found".
5. ` + "`REJECTED`" + ` with reason ` + "`MOVED`" + ` is not final: the account was being handed to another part of the
   system. Repeat under the same id; the new home decides.

`

const referenceMiddle = `
A payment channel repeats a callback on 503 and on no answer, never on 404 or 409: those are recorded.

# HTTP 错误码（中文）

所有错误均为 ` + "`application/problem+json`" + `（RFC 9457），程序只应比较 ` + "`code`" + `；` + "`title`" + ` 与 ` + "`detail`" + `
供人阅读，语言由 ` + "`Accept-Language`" + ` 决定（en、zh-CN）。

- **永久**：同样的请求永远得到同样的回答，不要重试。
- **同一编号**：重试时使用同一个 ` + "`request_id`" + `（或 ` + "`payment_id`" + `）。更换编号就是新的请求，而旧请求可能已被受理。
- **等待**：最短时间；以回答中的 ` + "`Retry-After`" + `（整秒）与 ` + "`retry_after_ms`" + ` 为准，已加入随机抖动。

五条规则：

1. 没有得到回答，或得到 ` + "`NOT_READY`" + `、` + "`INTERNAL`" + `：结果未知。使用同一编号重试，并带上 ` + "`Retry-Attempt: n`" + `（n 从 1 递增）。
   这样的重试不受活动时间、凭证过期和售罄缓存的限制，由归属单元先按重放处理。
2. 其他非永久的回答：按提示等待，用同一编号重试，` + "`Retry-Attempt`" + ` 保持不变。
3. ` + "`PERMIT_INVALID`" + `：重新获取凭证，请求编号不变。
4. ` + "`202`" + ` 不代表购买成功，状态为 ` + "`PAID`" + ` 才是。请保存回执（receipt）：带上它查询状态永远不会是“未找到”。
5. 状态 ` + "`REJECTED`" + ` 且原因为 ` + "`MOVED`" + ` 不是最终结果：该账号正在迁移。请使用同一编号重试，由新的归属单元决定。

`

// Every outcome, state and reason has its text in both languages, and every problem is a complete one.
func TestTexts(t *testing.T) {
	for code, e := range Catalog {
		for _, text := range append(e.Title[:], e.Tell[:]...) {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s lacks a text", code)
			}
		}
		if e.Status < 400 || (e.Permanent && e.Wait > 0) || (e.Permanent && e.SameID) {
			t.Errorf("%s contradicts itself: %+v", code, e)
		}
	}
	for n, name := range cq.RequestState_name {
		if s := cq.RequestState(n); s != cq.RequestState_REQUEST_STATE_UNSPECIFIED && (message(s, 0, English) == "" || message(s, 0, Chinese) == "") {
			t.Errorf("%s has no message", name)
		}
	}
	for n, name := range cq.Reason_name {
		r := cq.Reason(n)
		if r == cq.Reason_REASON_UNSPECIFIED || r == cq.Reason_REASON_MALFORMED {
			continue // nothing that a person could use
		}
		if reasons[r][English] == "" || reasons[r][Chinese] == "" {
			t.Errorf("%s has no text", name)
		}
		if got := message(cq.RequestState_REQUEST_STATE_PAID, r, English); strings.Contains(got, reasons[r][English]) {
			t.Errorf("a paid order says %q", got)
		}
	}
	for n, name := range cq.AdmitOutcome_name {
		o := cq.AdmitOutcome(n)
		_, refused := verdicts[o]
		success := o == cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED || o == cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED || o == cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR
		if refused == success && n != 0 {
			t.Errorf("%s is not in the table of verdicts", name)
		}
	}
}

// Waits are spread, never below what was said and never by more than the bound.
func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 200 {
		p := at(atHome, QueueFull).after(2 * time.Second)
		d := p.jittered()
		if d < 2*time.Second || d > 3*time.Second {
			t.Fatalf("2 s became %v", d)
		}
		seen[d] = true
		if d := at(atHome, NotStarted).after(time.Hour).jittered(); d < time.Hour || d > time.Hour+longestSpread {
			t.Fatalf("the start is spread to %v", d)
		}
		if d := at(atHome, RateLimited).after(time.Microsecond).jittered(); d < shortestWait {
			t.Fatalf("told to come back in %v", d)
		}
		if d := at(atHome, Ended).jittered(); d != 0 {
			t.Fatalf("told to come back in %v after the end", d)
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different waits", len(seen))
	}
}

// Whoever looks as he is told looks after 500 ms, 1 s, 2 s and so on, spread by a quarter.
func TestPollHints(t *testing.T) {
	admitted := time.UnixMilli(1_800_000_000_000)
	for range 50 {
		now := admitted
		for _, want := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
			want *= time.Millisecond
			got := time.Duration(poll(cq.RequestState_REQUEST_STATE_QUEUED, admitted.UnixMilli(), now)) * time.Millisecond
			if got < want || got > want+want/4 {
				t.Fatalf("%v after the admission the next look is in %v, want %v and a quarter", now.Sub(admitted), got, want)
			}
			now = now.Add(got)
		}
	}
	if got := poll(cq.RequestState_REQUEST_STATE_ADMITTED, 0, admitted); got < 500 || got > 625 {
		t.Errorf("of unknown age: %d ms", got)
	}
	if got := poll(cq.RequestState_REQUEST_STATE_QUEUED, admitted.Add(time.Hour).UnixMilli(), admitted); got < 500 || got > 625 {
		t.Errorf("admitted by a clock that is ahead: %d ms", got)
	}
	if poll(cq.RequestState_REQUEST_STATE_PAID, admitted.UnixMilli(), admitted) != 0 {
		t.Error("a paid request is to be looked at")
	}
}
