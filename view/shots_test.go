package view

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestShots makes the screenshots of docs/view.md: VIEW_SHOTS=DIR go test -run TestShots ./view.
func TestShots(t *testing.T) {
	dir := os.Getenv("VIEW_SHOTS")
	if dir == "" {
		t.Skip("makes the screenshots of the documents: VIEW_SHOTS=DIR")
	}
	for _, c := range []struct{ name, set, second, hash string }{
		{"episode", "g1_h264_v30", "", "e=2&r=96"},
		{"table", "g1_h264_v30", "", "e=2&table=1&by=jerk_rms&sort=down&colour=jerk_rms"},
		{"clocks", "mcap_robot/recording_zstd.mcap", "", "t=1500000000&hz=20"},
	} {
		sets := []string{c.set}
		p := serve(t, Options{}, sets...).browse(c.hash)
		if c.name == "clocks" {
			eval[bool](
				p,
				"(document.documentElement.dataset.theme !== 'dark' && "+
					"document.querySelector('#theme').click(), true)",
			)
			eval[bool](
				p,
				"(document.querySelector('#plots .plot:nth-child(2)').scrollIntoView({ block: "+
					"'end' }), true)",
			)
			p.wait("document.querySelectorAll('#plots .plot[data-points]').length > 1")
		}
		time.Sleep(time.Second)
		// the local path is not relevant for readers
		eval[string](
			p,
			"document.querySelector('#dataset').textContent = "+
				"document.querySelector('#dataset').textContent.replace(/^.*[/]/, '')",
		)
		p.shot(filepath.Join(dir, c.name+".png"))
	}
}
