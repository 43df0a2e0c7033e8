package view

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/goatnote-inc/robocache/internal/tests/cases"
	"github.com/goatnote-inc/robocache/synth"
)

// A page with an empty dataset reports this. Keys and buttons cause no errors, and another dataset
// still opens.
func TestViewEmptySet(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full")
	if _, err := synth.Write(t.Context(), full,
		synth.Options{Codec: "png", Episodes: 1, Seconds: 1}); err != nil {
		t.Fatal(err)
	}
	empty := cases.EmptySet(t)
	for name, c := range map[string]struct {
		sets    []string
		problem string
	}{
		"alone":  {[]string{empty}, "the dataset has no episodes"},
		"first":  {[]string{empty, full}, "the dataset has no episodes"},
		"second": {[]string{full, empty}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, Options{}, c.sets...).browse("")
			for _, key := range []string{" ", kb.ArrowRight, kb.Home, "f", "n"} {
				p.press(key)
				p.press(kb.Escape)
			}
			if c.problem != "" {
				eval[bool](
					p,
					"(['play', 'back', 'next', 'flag'].forEach((id) => "+
						"document.getElementById(id).click()), true)",
				)
			}
			if got := eval[string](p, "document.querySelector('#problem').textContent"); got !=
				c.problem {
				t.Errorf("the page says %q, want %q", got, c.problem)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, text := range p.wrong {
				// episode 0 is requested before the number of episodes is known
				if !strings.Contains(text, "/api/e/0?s=0") {
					t.Errorf("console: %s", text)
				}
			}
		})
	}
}
