package view

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

const recording = "mcap_robot/recording_zstd.mcap"

// TestFirstView opens a recording with a late camera. Frames are shown, joints are the first plots,
// other streams are closed.
func TestFirstView(t *testing.T) {
	p := serve(t, Options{}, recording).browse("")
	if text := eval[string](p, "document.querySelector('#clock').textContent"); text !=
		"0.534 s of 3.20 s · row 0 of 80" {
		t.Error("clock: ", text)
	}
	p.wait("document.querySelector('#cameras figure').dataset.row === '0'")
	if n := eval[int](p, "document.querySelectorAll('figure .none:not([hidden])').length"); n != 0 {
		t.Errorf("%d black boxes", n)
	}
	if share := eval[float64](p,
		"[...document.querySelectorAll('#views figure')].reduce((sum, f) => sum + "+
			"f.clientWidth, 0) / document.querySelector('#views').clientWidth"); share < 0.9 {
		t.Errorf("cameras and clouds use %.0f %% of the width", 100*share)
	}
	keys := eval[string](
		p,
		"[...document.querySelectorAll('#plots [data-key]')].map((x) => x.dataset.key).join(' ')",
	)
	if keys != "joint_states.position joint_states.velocity" {
		t.Error("plots that are open: ", keys)
	}
	if !eval[bool](p,
		"!document.querySelector('#more-box').open && !document.querySelector('#lanes-box').open") {
		t.Error("the rest is not folded")
	}
	order := eval[[]string](
		p,
		"[...document.querySelectorAll('#more [data-key]')].map((x) => x.dataset.key)",
	)
	if len(order) != 14 || !strings.HasSuffix(order[0], "orientation") ||
		!strings.Contains(order[len(order)-1], "tf_static") {
		t.Errorf("folded streams: %q", order)
	}
	eval[bool](
		p,
		"(document.querySelector('#more-box').open = true, "+
			"document.querySelector('#more').scrollIntoView(), true)",
	)
	p.wait("document.querySelectorAll('#more .plot[data-points]').length > 1")
	// a static transform has no plot
	p.wait(
		"/^[-0-9.]+, [-0-9.]+, [-0-9.]+$/.test(document.querySelector('#more .fixed " +
			"span').textContent)",
	)
	eval[bool](
		p,
		"(document.querySelector('#range').value = 0, "+
			"document.querySelector('#range').dispatchEvent(new Event('input')), true)",
	)
	p.press(kb.Home)
	p.wait("document.querySelector('#clock').textContent === '0.000 s of 3.20 s · row – of 80'")
	p.clean()
}

// TestFindingsOfAnEpisode checks that findings with an episode count as the episode's, have a time,
// and that the key n visits them.
func TestFindingsOfAnEpisode(t *testing.T) {
	p := serve(t, Options{}, recording).browse("t=0")
	if text := eval[string](p, "document.querySelector('#findings-title').textContent"); text !=
		"Findings: 12 of this episode, 0 of the dataset" {
		t.Error(text)
	}
	clock := func() string {
		return eval[string](p, "document.querySelector('#clock').textContent")
	}
	current := func() string {
		return eval[string](p, "document.querySelector('#findings .current')?.textContent ?? ''")
	}
	p.press("n")
	if !strings.HasPrefix(clock(), "0.534 s") || !strings.Contains(current(), "late-start") {
		t.Error(clock(), current())
	}
	p.press("n")
	if !strings.HasPrefix(clock(), "1.99") && !strings.HasPrefix(clock(), "2.00") ||
		!strings.Contains(current(), "gap") {
		t.Error(clock(), current())
	}
	p.press("n") // there is only one episode, so it starts again
	if !strings.Contains(current(), "late-start") {
		t.Error(current())
	}
	p.wait("document.querySelectorAll('#marks button').length === 2")
	p.wait("document.querySelector('#rows .tags').textContent.trim() === '2'")
	p.clean()
}

// TestCommonOrigin compares a recording with a part of it that begins later. Both are shown on the
// time axis of the recording.
func TestCommonOrigin(t *testing.T) {
	ds, err := robocache.Open(
		t.Context(),
		filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap"),
	)
	if err != nil {
		t.Skip(err)
	}
	defer ds.Close()
	dst := filepath.Join(t.TempDir(), "part.mcap")
	part := &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}}
	if _, err := convert.Write(t.Context(), ds, "mcap", dst, convert.Options{Align: part}); err !=
		nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sets  []string
		label string
	}{
		{[]string{recording, dst}, "begins 0.534 s later"},
		{[]string{dst, recording}, "begins 0.534 s earlier"},
	} {
		p := serve(t, Options{}, c.sets...).browse("")
		labels := eval[string](
			p,
			"[...document.querySelectorAll('figcaption b')].map((b) => b.textContent).join('|')",
		)
		if !strings.Contains(labels, c.label) {
			t.Error(labels)
		}
		// At any moment, the frames of both cameras are within one period of the slower one.
		eval[bool](
			p,
			"(document.querySelector('#range').value = 1e9, "+
				"document.querySelector('#range').dispatchEvent(new Event('input')), true)",
		)
		p.wait("[...document.querySelectorAll('#cameras figure')].every((f) => f.dataset.row > 0)")
		times := eval[[]float64](
			p,
			"[...document.querySelectorAll('#cameras figcaption')].map((f) => "+
				"Number(/([-0-9.]+) s$/.exec(f.textContent)[1]))",
		)
		if len(times) != 2 || times[0]-times[1] > 0.051 || times[1]-times[0] > 0.051 {
			t.Errorf("%v: cameras at %v s", c.sets, times)
		}
		p.clean()
	}
	// Recordings of different days both start at 0.
	q := serve(t, Options{}, recording, made(t, "mcap", synth.Options{Codec: "png"})).browse("")
	if labels := eval[string](
		q,
		"[...document.querySelectorAll('figcaption b')].map((b) => b.textContent).join('|')",
	); strings.Contains(labels, "begins") ||
		!strings.Contains(labels, "second dataset") {
		t.Error(labels)
	}
}

// TestNoEmoji checks that no symbol of the page needs an emoji or symbol font.
func TestNoEmoji(t *testing.T) {
	err := fs.WalkDir(assetFiles(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "uPlot") {
			return err
		}
		b, err := fs.ReadFile(assetFiles(), path)
		for i, r := range string(b) {
			if r >= 0x2300 && r < 0x2400 || r >= 0x25a0 && r < 0x2800 ||
				r >= 0x2b00 && r < 0x2c00 ||
				r >= 0xfe00 && r < 0xfe10 ||
				r >= 0x1f000 {
				t.Errorf("%s at byte %d: %s", path, i, fmt.Sprintf("%U", r))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
