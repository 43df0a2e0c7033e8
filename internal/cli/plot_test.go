package cli

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	uri := realdata.Path(t, "g1_h264_v30")
	for _, name := range []string{"a.png", "a.svg", "a.html"} {
		code, out, errs := call(t, "plot", uri, "--episode", "1", "-o", in(name))
		if code != exitDone || !strings.Contains(out, "streams of episode 1") ||
			!strings.Contains(out, "not drawn, cameras") {
			t.Fatalf("%s: %d %s %s", name, code, out, errs)
		}
		b, err := os.ReadFile(in(name))
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "a.png":
			img, err := png.Decode(bytes.NewReader(b))
			if err != nil || img.Bounds().Dx() != 1280 {
				t.Fatal(err, img)
			}
		case "a.svg":
			wellFormed(t, b)
			if !bytes.Contains(b, []byte("action")) {
				t.Error("no title of a stream")
			}
		default:
			if !bytes.HasPrefix(b, []byte("<!doctype html>")) ||
				bytes.Contains(b, []byte("<script")) ||
				!bytes.Contains(b, []byte("<svg")) {
				t.Errorf("%.200s", b)
			}
		}
	}
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{".png, .svg or .html", exitMisuse, []string{"-o", in("a.pdf")}},
		{"no such stream", exitMisuse, []string{"-o", in("b.png"), "--keys", "acton"}},
		{"bookkeeping", 12, []string{"-o", in("b.png"), "--keys", "timestamp"}},
		{"episode", exitMisuse, []string{"-o", in("b.png"), "--episode", "999"}},
		{"out", exitMisuse, nil},
	} {
		if code, _, errs := call(
			t,
			append([]string{"plot", uri}, c.args...)...); code != c.code ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%v: %d %s", c.args, code, errs)
		}
	}
	if _, err := os.Stat(in("b.png")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a refused plot left a file")
	}
}

// TestPlotOfManyClocks: a recording whose streams have their own clocks is drawn. Cameras are drawn
// if they are named. Hostile text stays text.
func TestPlotOfManyClocks(t *testing.T) {
	dir := t.TempDir()
	set, out := filepath.Join(dir, `<img src=x onerror=alert(1)> & "set"`),
		filepath.Join(dir, "p.html")
	if code, _, errs := call(t, "synth", set, "--format", "mcap", "--episodes", "1", "--seconds",
		"1", "--rates", "camera=15,joints=50,force=100", "--size", "64x64"); code != exitDone {
		t.Skip(errs)
	}
	_, text, _ := call(t, "inspect", set, "--json")
	key := ""
	for _, part := range strings.Split(text, `"key":`)[1:] {
		name := strings.Split(strings.TrimSpace(part), `"`)[1]
		if strings.Contains(name, "cam") || strings.Contains(name, "image") {
			key = name
			break
		}
	}
	args := []string{"plot", set, "-o", out}
	if key != "" {
		args = append(args, "--keys", key)
	}
	if code, said, errs := call(t, args...); code != exitDone {
		t.Fatal(said, errs)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("<img")) ||
		key != "" && !bytes.Contains(b, []byte("data:image/png;base64")) {
		t.Errorf("%.600s", b)
	}
	wellFormed(t, b[bytes.Index(b, []byte("<svg")):bytes.LastIndex(b, []byte("</body>"))])
}

func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v: %.300s", err, b)
		}
	}
}
