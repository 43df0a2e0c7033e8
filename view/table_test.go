package view

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/synth"
)

// TestTable: the table of 100,000 episodes has few elements. It sorts by a column, selects with keys
// and mouse, flags the selection, and opens an episode.
func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.json")
	p := serveSets(t, Options{Flags: path}, newNumbers(100_000, 5, 4)).browse("e=7&table=1")
	p.wait("document.querySelectorAll('#grid-rows .entry').length > 5")
	cell := func(n int) string {
		return eval[string](
			p,
			"[...document.querySelectorAll('.entry:not([hidden])')].sort((a, b) => "+
				"parseFloat(a.style.top) - parseFloat(b.style.top))["+string(rune('0'+n))+"].children[0].textContent",
		)
	}
	if n := eval[int](p, "document.querySelectorAll('#grid-rows .entry').length"); n > 60 {
		t.Errorf("%d rows in the page", n)
	}
	p.wait("document.querySelector('.entry.cursor').textContent.startsWith('7')")
	p.press(kb.Home)
	p.press(kb.ArrowDown)
	p.press(kb.ArrowDown, chromedp.KeyModifiers(8)) // Shift
	p.wait("document.querySelector('#selected').textContent === '2 selected'")
	p.press("1")
	p.wait("document.querySelectorAll('.entry[aria-selected=true]')[1].textContent.includes('bad')")
	f, err := flags.Read(t.Context(), path)
	if err != nil || len(f.Flags) != 2 || f.Flags[0].Episode != 1 || f.Flags[1].Episode != 2 ||
		f.Flags[1].Label != "bad" {
		t.Errorf("%+v %v", f, err)
	}
	eval[bool](p, "(document.querySelectorAll('#grid-head button')[3].click(), true)") // flags
	p.wait("document.querySelector('#grid-head [aria-sort=descending]')")
	if a, b := cell(0), cell(1); a != "2" && a != "1" || b != "2" && b != "1" {
		t.Errorf("most flags first: episodes %s, %s", a, b)
	}
	p.wait("location.hash.includes('by=flags') && location.hash.includes('table=1')")
	p.press("a", chromedp.KeyModifiers(2)) // Ctrl
	p.wait("document.querySelector('#selected').textContent === '100000 selected'")
	p.press("2")
	p.wait("document.querySelector('.entry').textContent.includes('failed')")
	if f, err = flags.Read(t.Context(), path); err != nil || len(f.Flags) != 100_000 {
		t.Errorf("%d flags, %v", len(f.Flags), err)
	}
	p.press(kb.Escape)
	p.wait("document.querySelector('#selected').textContent === ''")
	p.press(kb.End)
	p.wait("document.querySelector('.entry.cursor').textContent.startsWith('99999')")
	p.press(kb.Enter)
	p.wait("document.body.dataset.ready === '0:99999' && document.querySelector('#sheet').hidden")
	p.clean()
}

// torn is a numbers dataset with one unreadable episode.
type torn struct{ *numbers }

func (d torn) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if rows[0].Episode == 1 {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "torn"}
	}
	return d.numbers.Gather(ctx, key, rows, dst)
}

// TestMetricsOfATornSet: the metrics of an unreadable episode are missing, and the other episodes
// are measured. The error of the episode is a finding.
func TestMetricsOfATornSet(t *testing.T) {
	s := serveSets(t, Options{}, torn{newNumbers(3, 100, 2)})
	var about struct {
		State    string
		Findings []placedFinding
	}
	for path := "/api/quality?run=1"; about.State != "done"; path = "/api/quality" {
		s.get(path, &about)
		time.Sleep(10 * time.Millisecond)
	}
	var header struct{ Points int }
	column := s.columns("/api/quality/columns?names=idle", &header)[0]
	for e, v := range column {
		if math.IsNaN(v) != (e == 1) {
			t.Errorf("episode %d: idle %v", e, v)
		}
	}
	isNamed := func(f placedFinding) bool { return f.Code == "not-measured" }
	if len(column) != 3 || !slices.ContainsFunc(about.Findings, isNamed) {
		t.Errorf("%d episodes, findings %+v", len(column), about.Findings)
	}
	if a, _ := s.do("GET", "/api/quality/columns?names=nothing", nil, nil); a.StatusCode != 404 {
		t.Errorf("an unknown column: %s", a.Status)
	}
}

// TestDatasetPanel: the panel lists the facts of a dataset in words, without JSON.
func TestDatasetPanel(t *testing.T) {
	p := serve(t, Options{}, "g1_h264_v30_bigdrift").browse("e=0")
	p.wait(
		"document.querySelector('#doctor').hidden && document.querySelector('#rows .tags .icon')",
	)
	eval[bool](p, "(document.querySelector('#about-button').click(), true)")
	p.wait("document.querySelector('#about .facts')")
	text := eval[string](p, "document.querySelector('#about').innerText")
	for _, want := range []string{
		"Episodes\t66", "Duration\t41.8 s", "Rows\t1,254", "Rates\t30 Hz", "160 × 120 · h264",
		"Robot\tUnitree_G1_Inspire", "Splits\ttrain 66", "1 error",
		"Pick up the yellow bottle on the table.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if strings.ContainsAny(text, "{}[]") {
		t.Errorf("JSON in %q", text)
	}
	p.clean()
}

// TestAnnotate: a range is marked with the mouse on the lane, gets a text, and is removed again.
func TestAnnotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.csv")
	set := made(t, "lerobot", synth.Options{Codec: "png", Episodes: 1, Seconds: 2, Cameras: 1})
	p := serve(t, Options{Annotations: path}, set).browse("")
	p.wait("document.querySelector('#notes .hint')")
	eval[bool](p, `(() => { const lane = document.querySelector('#notes'),
		{ left, top, width } = lane.getBoundingClientRect();
		lane.setPointerCapture = () => {};
		const send = (type, share) => lane.dispatchEvent(new PointerEvent(type,
			{ clientX: left + share * width, clientY: top + 5, pointerId: 1, bubbles: true }));
		send('pointerdown', 0.25); send('pointermove', 0.4); send('pointerup', 0.5); return true; })()`)
	p.wait("document.querySelector('#note-dialog').open")
	eval[bool](p, "(document.querySelector('#note-text').value = 'grasp', "+
		"document.querySelector('#note-dialog button[value=save]').click(), true)")
	p.wait("document.querySelector('#notes button')?.textContent === 'grasp'")
	content, err := os.ReadFile(path)
	var from, to int
	_, bad := fmt.Sscanf(string(content), "episode,from,to,text\n0,%d,%d,grasp\n", &from, &to)
	// the episode has 60 rows in 1.97 s
	if err != nil || bad != nil || from < 13 || from > 16 || to < 29 || to > 32 {
		t.Errorf("%q %v %v", content, err, bad)
	}
	eval[bool](p, "(document.querySelector('#notes button').click(), "+
		"document.querySelector('#note-remove').click(), true)")
	p.wait("document.querySelector('#notes .hint')")
	p.clean()
}

// TestWhere: the field evaluates an expression on the server. An expression about rows marks them on
// the time axis. The field shows the error of a wrong one.
func TestWhere(t *testing.T) {
	p := serveSets(t, Options{}, newNumbers(30, 100, 2)).browse("e=4")
	ask := func(expr, want string) {
		t.Helper()
		eval[bool](p, "(document.querySelector('#where').value = `"+expr+"`, "+
			"document.querySelector('#where').dispatchEvent(new Event('change')), true)")
		p.wait("document.querySelector('#count').textContent.startsWith('" + want + "')")
	}
	p.wait("document.querySelector('#by option[value=idle]')")
	ask("index >= 20 and q.duration > 3", "10 of 30")
	ask("task == 'pick'", "10 of 30")
	ask("", "30 of 30")
	// sin(row/50) is above 0.99 from row 72 to 85
	ask("'observation.state'[0] > 0.99", "30 of 30")
	p.wait("document.querySelectorAll('#marks .found').length === 1")
	left := eval[float64](p, "parseFloat(document.querySelector('#marks .found').style.left)")
	if want := 100 * 72.0 / 99; math.Abs(left-want) > 0.6 {
		t.Errorf("the rows begin at %.2f %% of the episode, want %.2f", left, want)
	}
	eval[bool](p, "(document.querySelector('#where').value = 'length <', "+
		"document.querySelector('#where').dispatchEvent(new Event('change')), true)")
	p.wait("document.querySelector('#where-problem.error:not([hidden])')")
	if eval[string](p, "document.querySelector('#where').ariaInvalid") != "true" {
		t.Error("the field is not marked as invalid")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.wrong {
		if !strings.Contains(text, "/api/where") { // the browser reports the status 400
			t.Error(text)
		}
	}
}
