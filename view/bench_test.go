package view

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/synth"
)

// numbers is a dataset of one stream, for sizes that synth does not produce.
type numbers struct {
	info robocache.Info
	rows int
}

func newNumbers(episodes, rows, channels int) *numbers {
	fps := robocache.Rate{Num: 30, Den: 1}
	return &numbers{rows: rows, info: robocache.Info{
		Format:   "numbers",
		FPS:      fps,
		Episodes: episodes,
		Frames:   int64(episodes * rows),
		Features: []robocache.Feature{
			{
				Key:   "observation.state",
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{channels},
				FPS:   fps,
			},
		},
	}}
}

func (d *numbers) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{}
}

func (d *numbers) Info() *robocache.Info { return &d.info }
func (d *numbers) Len(int) int           { return d.rows }
func (d *numbers) Close() error          { return nil }
func (d *numbers) Stats(context.Context) (robocache.Stats, error) {
	return nil, nil
}

func (d *numbers) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return nil
}

func (d *numbers) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   d.rows,
		Tasks:    []string{[]string{"pick", "place", "push"}[e%3]},
	}, nil
}

func (d *numbers) Times(context.Context, int, string) ([]int64, error) {
	out := make([]int64, d.rows)
	for i := range out {
		out[i] = d.info.FPS.Nanos(int64(i))
	}
	return out, nil
}

func (d *numbers) Gather(_ context.Context, _ string, rows []robocache.Row, dst []byte) error {
	n := d.info.Features[0].Elements()
	for i, r := range rows {
		for c := range n {
			v := float32(math.Sin(float64(r.Index)/50 + float64(c)))
			binary.LittleEndian.PutUint32(dst[4*(i*n+c):], math.Float32bits(v))
		}
	}
	return nil
}

func (d *numbers) Text(_ context.Context, _ string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, r := range rows {
		ep, _ := d.Episode(context.Background(), r.Episode)
		out[i] = ep.Tasks[0]
	}
	return out, nil
}

// TestBudget prints the table of docs/view.md with the waiting times in the page. It uses the
// installed program. make view-bench runs it.
func TestBudget(t *testing.T) {
	program := os.Getenv("ROBOCACHE_VIEW_BENCH")
	if program == "" {
		t.Skip("a measurement: make view-bench")
	}
	sets := os.Getenv("ROBOCACHE_VIEW_SETS") // kept between runs
	if sets == "" {
		sets = t.TempDir()
	}
	prepare := func(name string, write func(dst string) error) string {
		dst := filepath.Join(sets, name)
		if _, err := os.Stat(dst); err != nil {
			if err := write(dst); err != nil {
				t.Fatal(err)
			}
		}
		return dst
	}
	of := func(episodes, rows, channels int) func(string) error {
		return func(dst string) error {
			_, err := convert.Write(
				t.Context(),
				newNumbers(episodes, rows, channels),
				"lerobot",
				dst,
				convert.Options{},
			)
			return err
		}
	}
	video := func(gop int) func(string) error {
		return func(dst string) error {
			_, err := synth.Write(
				t.Context(),
				dst,
				synth.Options{
					Episodes: 2,
					Seconds:  10,
					Cameras:  3,
					Width:    640,
					Height:   480,
					Codec:    "h264",
					GOP:      gop,
				},
			)
			return err
		}
	}
	vga, many, wide := prepare("vga30", video(30)), prepare("many", of(100_000, 3, 8)),
		prepare("wide", of(1, 100_000, 26))
	gop2 := prepare("vga2", video(2))
	fmt.Println("| | measured | bar |\n|---|---|---|")
	say := func(what, bar, format string, args ...any) {
		fmt.Printf("| %s | %s | %s |\n", what, fmt.Sprintf(format, args...), bar)
	}
	rss := 0.0
	with := func(set string, measure func(p *tab)) {
		cmd := exec.Command(program, "view", set, "--json")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
		line, err := bufio.NewReader(out).ReadBytes('\n')
		var about struct{ URL string }
		if err != nil || json.Unmarshal(line, &about) != nil {
			t.Fatal(err, string(line))
		}
		base, hash, _ := strings.Cut(about.URL, "/#")
		s := &site{T: t, http: &httptest.Server{URL: base}}
		p := s.browseAt("#" + hash)
		measure(p)
		p.clean()
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		var kb float64
		if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
			fmt.Sscan(after, &kb)
		}
		rss = max(rss, kb/1024)
	}
	scrub := func(p *tab, cameras int) (p50, p95 float64) {
		var waits []float64
		rnd := rand.New(rand.NewPCG(3, 4))
		for range 60 {
			row := rnd.IntN(300)
			waits = append(
				waits,
				eval[float64](
					p,
					fmt.Sprintf(
						`new Promise((done) => { const r = document.querySelector('#range'), from = performance.now(), figures = [...document.querySelectorAll('#cameras figure')].slice(0, %d);
				r.value = %d; r.dispatchEvent(new Event('input'));
				const look = () => figures.every((f) => f.dataset.row === '%d') ? done(performance.now() - from) : setTimeout(look, 1); look(); })`,
						cameras,
						int64(row)*1e9/30+1e6,
						row,
					),
				),
			)
			time.Sleep(20 * time.Millisecond)
		}
		slices.Sort(waits)
		return waits[len(waits)/2], waits[len(waits)*95/100]
	}
	drawn := func(p *tab) int {
		p.wait("document.querySelector('#cameras figure').dataset.drawn")
		return eval[int](p, "Number(document.querySelector('#cameras figure').dataset.drawn)")
	}
	for _, c := range []struct{ name, set string }{{"GOP 30", vga}, {"GOP 2", gop2}} {
		with(c.set, func(p *tab) {
			first := drawn(p)
			var again []int
			for range 5 {
				p.visit("#e=1")
				again = append(again, drawn(p))
			}
			slices.Sort(again)
			say(
				"first frame of 3 cameras 640×480, "+c.name+", the page opened anew",
				"300 ms",
				"%d ms (the very first %d ms)",
				again[2],
				first,
			)
			p50, p95 := scrub(p, 3)
			say(
				"scrub to a random row, 3 cameras, "+c.name,
				"p95 60 ms (one camera)",
				"p50 %.0f, p95 %.0f ms",
				p50,
				p95,
			)
		})
		with(c.set, func(p *tab) {
			p.visit("#e=0&k=observation.images.cam_1,observation.images.cam_2")
			p50, p95 := scrub(p, 1)
			say(
				"scrub to a random row, one camera, "+c.name,
				"p95 60 ms",
				"p50 %.0f, p95 %.0f ms",
				p50,
				p95,
			)
		})
	}
	with(many, func(p *tab) {
		p.visit("#e=5")
		p.wait("document.querySelector('#list').dataset.listed")
		ms := eval[int](p, "Number(document.querySelector('#list').dataset.listed)")
		say("100,000 episodes listed, from opening the page", "1 s", "%d ms", ms)
		filter := eval[float64](
			p,
			"(() => { const f = document.querySelector('#filter'), t = performance.now(); "+
				"f.value = 'place'; f.dispatchEvent(new Event('input')); return "+
				"performance.now() - t; })()",
		)
		say("100,000 episodes filtered", "–", "%.0f ms", filter)
		sorted := eval[float64](
			p,
			"(() => { const f = document.querySelector('#sort'), t = performance.now(); "+
				"f.value = 'down'; f.dispatchEvent(new Event('input')); return "+
				"performance.now() - t; })()",
		)
		say("100,000 episodes sorted", "100 ms", "%.0f ms", sorted)
	})
	with(wide, func(p *tab) {
		p.wait("document.querySelector('#plots .plot')?.dataset.span")
		var waits []float64
		for k := range 20 {
			from := int64(k) * 100e9
			waits = append(
				waits,
				eval[float64](
					p,
					fmt.Sprintf(
						`import(document.querySelector('script[type=module]').src.replace('main.js', 'state.js')).then((m) => new Promise((done) => { const from = performance.now(); m.state.zoom = [%d, %d]; m.tell('zoom');
				const look = () => document.querySelector('#plots .plot').dataset.span === '%d,%d' ? done(performance.now() - from) : setTimeout(look, 1); look(); }))`,
						from,
						from+1000e9,
						from,
						from+1000e9,
					),
				),
			)
		}
		slices.Sort(waits)
		say(
			"26 × 100,000 rows, zoomed to 30,000 of them",
			"100 ms",
			"p50 %.0f, p95 %.0f ms",
			waits[10],
			waits[18],
		)
	})
	say("most memory of the server (RSS)", "512 MiB", "%.0f MiB", rss)
}
