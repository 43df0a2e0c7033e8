package view

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/synth"
)

// code reads the episode and row from the pixels of a camera on the screen.
func (t *tab) code(selector string) (episode, row int, ok bool) {
	t.Helper()
	text := eval[string](
		t,
		`(() => { const from = document.querySelector(`+"`"+selector+"`"+
			`), c = document.createElement('canvas');
		c.width = from.videoWidth || from.width; c.height = from.videoHeight || from.height;
		const g = c.getContext('2d'); g.drawImage(from, 0, 0);
		const d = g.getImageData(0, 0, c.width, c.height).data; let s = '';
		for (let i = 0; i < d.length; i += 4) s += String.fromCharCode(d[i], d[i + 1], d[i + 2]);
		return c.width + ' ' + c.height + ' ' + btoa(s); })()`,
	)
	var w, h int
	var pixels string
	if _, err := fmt.Sscan(text, &w, &h, &pixels); err != nil {
		t.Fatal(err)
	}
	rgb, err := base64.StdEncoding.DecodeString(pixels)
	if err != nil {
		t.Fatal(err)
	}
	return synth.ReadCode(rgb, w, h)
}

const firstCamera = "#cameras figure:nth-child(1)"

// TestKeys: the keys work, and the frame on the screen is that of the row in the caption. Flags are
// written to the file. An address opens the view from which it was copied (acceptance cases 8 and
// 9).
func TestKeys(t *testing.T) {
	evil := `<img src=x onerror="document.title='owned'"><script>1</script>`
	path := filepath.Join(t.TempDir(), "flags.json")
	set := made(
		t,
		"lerobot",
		synth.Options{
			Codec:    "h264",
			GOP:      30,
			Episodes: 6,
			Spread:   0.3,
			Tasks:    []string{evil, "reach"},
		},
	)
	p := serve(t, Options{Flags: path}, set).browse("")
	row := func() int {
		return eval[int](p, "Number(document.querySelector('"+firstCamera+"').dataset.row)")
	}
	at := func(e, n int) {
		t.Helper()
		p.wait(
			fmt.Sprintf(
				"document.body.dataset.ready === '0:%d' && "+
					"document.querySelector('%s').dataset.row === '%d'",
				e,
				firstCamera,
				n,
			),
		)
		if ge, gr, ok := p.code(firstCamera + " canvas"); !ok || ge != e || gr != n {
			t.Fatalf("the canvas shows episode %d row %d (%v), expected %d, %d", ge, gr, ok, e, n)
		}
	}
	at(0, 0)
	for _, c := range []struct {
		key  string
		e, n int
	}{
		{kb.ArrowRight, 0, 1},
		{kb.ArrowRight, 0, 2},
		{kb.ArrowLeft, 0, 1},
		{kb.ArrowDown, 1, 0},
		{kb.ArrowDown, 2, 0},
		{kb.ArrowUp, 1, 0},
	} {
		p.press(c.key)
		at(c.e, c.n)
	}
	p.press(kb.ArrowRight, chromedp.KeyModifiers(8)) // Shift
	at(1, 10)
	p.press(kb.End)
	last := eval[int](p,
		"1 * document.querySelector('#clock').textContent.match(/of (\\d+)$/)[1]") - 1
	at(1, last)
	p.press(kb.Home)
	at(1, 0)

	// Playback shows the video file, and then the still frame of the row.
	p.press(" ")
	p.wait("Number(document.querySelector('" + firstCamera + "').dataset.row) > 8")
	if eval[bool](p, "!document.querySelector('"+firstCamera+" video').hidden") {
		t.Log("the browser plays the file itself")
	}
	p.press(" ")
	p.wait("document.querySelector('" + firstCamera + " video').hidden")
	time.Sleep(100 * time.Millisecond)
	if n := row(); n < 8 {
		t.Errorf("row %d after playing", n)
	} else {
		at(1, n)
	}

	// Speed, filter, help.
	p.press(".")
	if v := eval[string](p, "document.querySelector('#speed').value"); v != "2" {
		t.Error("speed", v)
	}
	p.press(",")
	p.press("?")
	p.wait("document.querySelector('#help').open")
	p.press(kb.Escape)
	p.wait("!document.querySelector('#help').open")
	p.press("/")
	p.wait("document.activeElement.id === 'filter'")
	// The driver types the key although the page has handled it.
	eval[bool](p, "(document.activeElement.value = '', true)")
	p.press("reach")
	p.wait("document.querySelector('#filter').value === 'reach'")
	if text := eval[string](p,
		"document.querySelector('#count').textContent"); !strings.HasPrefix(text, "3 of 6") {
		t.Error(text, eval[string](p, "document.querySelector('#list').innerText"))
	}
	p.press(kb.Escape)

	// Strings from the dataset stay text.
	if n := eval[int](p, "document.querySelectorAll('img, #rows script').length"); n != 0 ||
		eval[string](p, "document.title") == "owned" {
		t.Errorf("%d elements of the task's text", n)
	}
	if !eval[bool](p, "document.querySelector('#task').textContent.length > 0") {
		t.Error("no task")
	}

	// Flags.
	p.press("1")
	p.wait("document.querySelector('#flags').textContent.includes('bad')")
	p.press("f")
	p.wait("document.querySelector('#flag-dialog').open")
	eval[bool](
		p,
		"(document.querySelector('#flag-label').value = 'bad', "+
			"document.querySelector('#flag-note').value = 'dropped <b>it', "+
			"document.querySelector('#flag-save').click(), true)",
	)
	p.wait("document.querySelector('#flags').textContent.includes('dropped <b>it')")
	f, err := flags.Read(t.Context(), path)
	if err != nil || len(f.Flags) != 1 || f.Flags[0].Episode != 1 || f.Flags[0].Label != "bad" ||
		f.Flags[0].Note != "dropped <b>it" {
		t.Errorf("%+v %v", f, err)
	}
	without, err := edit.Run(
		t.Context(),
		&edit.Request{
			Sources: []string{set},
			DST:     filepath.Join(t.TempDir(), "out"),
			Verbs:   []edit.Verb{{Verb: "delete", Choice: edit.Choice{Flags: path}}},
		},
	)
	if err != nil || without.Episodes != 5 || without.Plan.Episodes[1].Episode != 2 {
		t.Errorf("edit delete --flags: %+v %v", without, err)
	}

	// The address opens the same view again.
	eval[bool](
		p,
		"(document.querySelector('#filter').value = '', "+
			"document.querySelector('#filter').dispatchEvent(new Event('input')), true)",
	)
	n := row() + 1
	p.press(kb.ArrowRight)
	p.wait(fmt.Sprintf("location.hash.includes('r=%d')", n))
	hash := eval[string](p, "location.hash")
	if strings.Contains(hash, "token") {
		t.Error("the token stays in the address: ", hash)
	}
	title := eval[string](
		p,
		"document.querySelector('#title').textContent + "+
			"document.querySelector('#clock').textContent",
	)
	p.visit(hash)
	at(1, n)
	if again := eval[string](p, "document.querySelector('#title').textContent + "+
		"document.querySelector('#clock').textContent"); again != title {
		t.Errorf("%q, before %q", again, title)
	}
	p.clean()
}

// TestSeen: a single outlier is drawn, gaps are shaded, all plots have the same zoom, and values
// are those of the row. Alignment, comparison and point clouds appear.
func TestSeen(t *testing.T) {
	p := serve(
		t,
		Options{},
		made(
			t,
			"mcap",
			synth.Options{
				Rates:   map[string]float64{"camera": 30, "joints": 100, "cloud": 10, "text": 2},
				Dropout: 5e8,
				Late:    3e8,
				Jitter:  2e6,
			},
		),
		made(t, "lerobot", synth.Options{Codec: "png"}),
	).browse("c=1:2&hz=25&z=200000000,900000000")
	eval[bool](p, "(document.querySelector('#plots').scrollIntoView(), true)")
	p.wait("document.querySelectorAll('#plots .plot[data-points]').length > 1")
	if n := eval[int](p, "document.querySelectorAll('#clouds figure').length"); n == 0 {
		t.Error("no cloud")
	}
	p.wait(
		"document.querySelector('#clouds figure').dataset.row >= 0 || " +
			"document.querySelector('#clouds .none').textContent.startsWith('begins')",
	)
	labels := eval[string](
		p,
		"[...document.querySelectorAll('figcaption b')].map((b) => b.textContent).join('|')",
	)
	if !strings.Contains(labels, "[25 Hz grid]") ||
		!strings.Contains(labels, "second dataset, episode 2") {
		t.Error(labels)
	}
	lanes := eval[string](p, "document.querySelector('#lanes').textContent")
	if !strings.Contains(lanes, "gap") || !strings.Contains(lanes, "25.0 Hz") {
		t.Error(lanes)
	}
	if texts := eval[string](p, "document.querySelector('#texts').textContent"); texts == "" {
		t.Error("no text")
	}
	before := eval[string](p, "document.querySelector('#plots canvas').toDataURL()")
	p.press("z")
	p.wait("!location.hash.includes('&z=')")
	p.wait(
		"document.querySelector('#plots canvas').toDataURL().length !== " + fmt.Sprint(len(before)),
	)
	p.press(kb.End)
	// The plots show the time line.
	p.wait("document.querySelector('#plots .at').offsetLeft > 500")
	// Elements have names for screen readers.
	if n := eval[int](p,
		"[...document.querySelectorAll('button, input, select, canvas[role]')].filter((x) => "+
			"!(x.ariaLabel || x.getAttribute('aria-label') || x.textContent.trim() || "+
			"x.labels?.length)).length"); n != 0 {
		t.Errorf("%d controls have no name", n)
	}
	p.clean()
}
