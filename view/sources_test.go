package view

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"

	_ "github.com/goatnote-inc/robocache/store/s3"
)

// TestRemotePage: the page of a dataset behind HTTP, and of one in a bucket of a real server, shows
// frames and plots, handles keys, and runs the doctor on request.
func TestRemotePage(t *testing.T) {
	set := made(t, "lerobot", synth.Options{Codec: "h264", GOP: 30, Episodes: 3})
	for name, address := range map[string]func(t *testing.T) string{
		"http": func(t *testing.T) string {
			srv, err := loopback.Serve(set, loopback.Options{Latency: 5 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = srv.Close() })
			return srv.URL
		},
		"s3": func(t *testing.T) string {
			dir, endpoint := servers.S3(t)
			t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
			if err := os.CopyFS(filepath.Join(dir, "lab", "set"), os.DirFS(set)); err != nil {
				t.Fatal(err)
			}
			return "s3://lab/set"
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, Options{}, address(t)).browse("e=1")
			for row := range 3 {
				p.wait(
					fmt.Sprintf(
						"document.querySelector('%s').dataset.row === '%d'",
						firstCamera,
						row,
					),
				)
				if e, n, ok := p.code(firstCamera + " canvas"); !ok || e != 1 || n != row {
					t.Errorf("episode %d row %d (%v), expected 1, %d", e, n, ok, row)
				}
				p.press(kb.ArrowRight)
			}
			p.wait(
				"document.querySelectorAll('#plots .plot[data-points]').length > 1 && " +
					"document.querySelectorAll('#rows .row').length === 3",
			)
			p.wait("!document.querySelector('#doctor').hidden")
			eval[bool](p, "(document.querySelector('#doctor').click(), true)")
			p.wait("document.querySelector('#doctor').hidden")
			eval[bool](
				p,
				"(document.querySelector('#measure').click(), true)",
			)
			p.wait("document.querySelector('#by option[value=idle]')")
			eval[bool](
				p,
				"(document.querySelector('#by').value = 'idle', "+
					"document.querySelector('#by').dispatchEvent(new Event('input')), true)",
			)
			p.wait("document.querySelector('#rows').textContent.includes('idle ')")
			p.clean()
		})
	}
}

// TestManyEpisodes: a list of 100,000 episodes has few elements, filters at once, and scrolls to
// its end. Its histogram filters by a click.
func TestManyEpisodes(t *testing.T) {
	p := serveSets(t, Options{}, newNumbers(100_000, 5, 4)).browse("e=99999")
	p.wait("document.querySelector('#count').textContent === '100000 of 100000 episodes'")
	p.wait("document.querySelector('#episode-0-99999')?.ariaSelected === 'true'")
	if n := eval[int](p, "document.querySelectorAll('#rows .row').length"); n == 0 || n > 40 {
		t.Errorf("%d rows in the page", n)
	}
	ms := eval[float64](
		p,
		"(() => { const f = document.querySelector('#filter'), t = performance.now(); f.value = "+
			"'push'; f.dispatchEvent(new Event('input')); return performance.now() - t; })()",
	)
	if text := eval[string](p, "document.querySelector('#count').textContent"); text !=
		"33333 of 100000 episodes" || ms > 1000 {
		t.Errorf("%s in %.0f ms", text, ms)
	}
	eval[bool](
		p,
		"(document.querySelector('#filter').value = '99999', "+
			"document.querySelector('#filter').dispatchEvent(new Event('input')), true)",
	)
	p.wait(
		"document.querySelector('#count').textContent.startsWith('1 of') && " +
			"location.hash.includes('q=99999')",
	)
	eval[bool](
		p,
		"(document.querySelector('#filter').value = '', "+
			"document.querySelector('#filter').dispatchEvent(new Event('input')), true)",
	)
	eval[bool](
		p,
		"(document.querySelector('#histogram').dispatchEvent(new MouseEvent('click', { clientX: "+
			"document.querySelector('#histogram').getBoundingClientRect().left + 1 })), true)",
	)
	p.wait(
		"document.querySelector('#least').value === '5' && " +
			"document.querySelector('#count').textContent.startsWith('100000 of')",
	)
	eval[bool](p, "(document.activeElement.blur(), true)")
	p.press(kb.ArrowUp)
	p.wait("document.body.dataset.ready === '0:99998'")
	p.clean()
}

// TestMoves: jerk and idle share distinguish episodes. The choice and its limits are in the
// address. The action is drawn over the state. A finding moves to its time.
func TestMoves(t *testing.T) {
	p := serve(t, Options{}, "g1_v30_drift").browse("e=0&by=jerk_rms&sort=down")
	p.wait("document.querySelector('#rows').textContent.includes('jerk_rms')")
	order := func() string {
		return eval[string](
			p,
			"[...document.querySelectorAll('#rows .row')].sort((a, b) => "+
				"parseFloat(a.style.top) - parseFloat(b.style.top)).map((r) => "+
				"r.querySelector('span').textContent.match(/jerk_rms ([0-9.]+)/)?.[1]).join(' ')",
		)
	}
	if text := order(); text == "" || eval[bool](p,
		fmt.Sprintf("'%s'.split(' ').map(Number).some((v, i, a) => !(v > 0) || i && v > a[i - 1])",
			text)) {
		t.Errorf("not the greatest first: %s", text)
	}
	eval[bool](
		p,
		"(document.querySelector('#least').value = '1e9', "+
			"document.querySelector('#least').dispatchEvent(new Event('input')), true)",
	)
	p.wait(
		"document.querySelector('#count').textContent.startsWith('0 of') && " +
			"location.hash.includes('by=jerk_rms') && location.hash.includes('least=1e9')",
	)
	p.wait(
		"document.querySelector('.plot[data-key=\"observation.state\"] " +
			"small').textContent.includes('dashed: action')",
	)
	p.wait(
		"document.querySelectorAll('#marks button').length > 0 || " +
			"![...document.querySelectorAll('#findings button')].length",
	)
	if eval[bool](p, "!!document.querySelector('#marks button')") {
		eval[bool](p, "(document.querySelector('#marks button').click(), true)")
		p.wait(
			"Number(document.querySelector('#range').value) > 0 || " +
				"document.querySelector('#marks button').style.left === '0%'",
		)
	}
	p.clean()
}
