package view

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is the page in a headless Chromium.
type tab struct {
	*testing.T
	site    *site
	ctx     context.Context
	mu      sync.Mutex
	wrong   []string // errors in the console, and exceptions
	outside []string // requests to other servers
}

// chromium starts one browser for all tests. Its context is nil if there is no browser.
var chromium = sync.OnceValue(func() context.Context {
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.NoFirstRun,
		chromedp.Headless,
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("enable-unsafe-swiftshader", true),
		chromedp.Flag(
			"disable-dev-shm-usage",
			true,
		),
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
	}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	closeChromium = func() { _ = chromedp.Cancel(ctx); cancel(); stop() }
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		panic(err)
	}
	return ctx
})

var closeChromium = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	closeChromium()
	os.Exit(code)
}

// browse opens the page at an address (#…) in a new tab. Without a browser it skips the test.
func (s *site) browse(hash string) *tab {
	s.Helper()
	return s.browseAt("#token=" + testToken + "&" + hash)
}

func (s *site) browseAt(hash string) *tab {
	s.Helper()
	browser := chromium()
	if browser == nil {
		s.Skip("no chromium-headless-shell: make browser")
	}
	ctx, cancel := chromedp.NewContext(browser)
	s.Cleanup(cancel)
	t := &tab{T: s.T, site: s, ctx: ctx}
	err := chromedp.Listen(ctx, func(ev any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			// messages about drawing without a GPU
			if (ev.Entry.Level == "error" || ev.Entry.Level == "warning") &&
				!strings.Contains(ev.Entry.Text, "GL Driver Message") {
				t.wrong = append(t.wrong, ev.Entry.Text+" "+ev.Entry.URL)
			}
		case *runtime.EventConsoleAPICalled:
			if ev.Type == "error" || ev.Type == "warning" {
				t.wrong = append(t.wrong, fmt.Sprint(ev.Args))
			}
		case *runtime.EventExceptionThrown:
			b, _ := json.Marshal(ev.ExceptionDetails)
			t.wrong = append(t.wrong, string(b))
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !strings.HasPrefix(u, s.http.URL) &&
				!strings.HasPrefix(u, "blob:"+s.http.URL) &&
				!strings.HasPrefix(u, "data:") {
				t.outside = append(t.outside, u)
			}
		}
	})
	if err != nil {
		s.Fatal(err)
	}
	t.visit(hash)
	return t
}

func (t *tab) visit(hash string) {
	t.Helper()
	if err := chromedp.Do(t.ctx, chromedp.Navigate("about:blank"),
		chromedp.Navigate(t.site.http.URL+"/"+hash)); err != nil {
		t.Fatal(err)
	}
	t.wait(
		"document.body.dataset.done && document.body.dataset.ready === document.body.dataset.done",
	)
}

func eval[T any](t *tab, js string) T {
	t.Helper()
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return v
}

// wait waits until an expression is true.
func (t *tab) wait(js string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if eval[bool](t, "!!("+js+")") {
			return
		}
		if time.Now().After(end) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.Fatalf(
				"after 30 s not %s\nconsole: %s\nthe page: %.2000s",
				js,
				t.wrong,
				eval[string](t, "document.body.innerText"),
			)
		}
	}
}

func (t *tab) press(keys string, options ...chromedp.KeyOption) {
	t.Helper()
	if err := chromedp.Do(t.ctx, chromedp.KeyEvent(keys, options...)); err != nil {
		t.Fatal(err)
	}
}

// clean checks that the page had no errors and requested nothing from other servers.
func (t *tab) clean() {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wrong) > 0 || len(t.outside) > 0 {
		t.Errorf("console: %q, requests to elsewhere: %q", t.wrong, t.outside)
	}
}

func (t *tab) shot(path string) {
	t.Helper()
	b, err := chromedp.Run(t.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFramesFirst: the page requests frames before everything slow: plots, findings, measures and
// texts. The lists of episodes and flags are requested at the same time as the episode, so their
// order may vary.
func TestFramesFirst(t *testing.T) {
	p := serve(t, Options{}, "g1_h264_v30").browse("")
	p.wait("document.querySelector('#plots canvas')")
	asked := eval[[]string](
		p,
		`performance.getEntriesByType('resource').sort((a, b) => a.startTime - b.startTime)
		.map((r) => new URL(r.name).pathname).filter((n) => /^.api.|uPlot.iife/.test(n))`,
	)
	first := slices.IndexFunc(
		asked,
		func(path string) bool { return strings.Contains(path, "/frame/") },
	)
	if first < 0 {
		t.Fatalf("no frame is asked for: %q", asked)
	}
	quick := []string{"/api/info", "/api/e/0", "/api/flags", "/api/episodes"}
	for _, path := range asked[:first] {
		if !slices.Contains(quick, path) {
			t.Errorf("%s is asked for before the first frame: %q", path, asked)
		}
	}
	if !slices.ContainsFunc(
		asked[first:],
		func(path string) bool { return strings.HasSuffix(path, "uPlot.iife.min.js") },
	) {
		t.Errorf("uPlot is not asked for: %q", asked)
	}
}

// TestPageOpens: every fixture opens with all its cameras and plots, and with no console message.
func TestPageOpens(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			p := serve(t, Options{}, name).browse("")
			p.wait(
				"[...document.querySelectorAll('#cameras figure')].every((f) => f.dataset.row " +
					">= 0 || f.querySelector('.none:not([hidden])'))",
			)
			p.clean()
			t.Log(
				eval[string](p, "document.querySelector('#episode').textContent"),
				eval[int](p, "document.querySelectorAll('#cameras figure').length"),
				"cameras",
				eval[int](p, "document.querySelectorAll('#plots canvas').length"),
				"plots drawn",
			)
		})
	}
}
