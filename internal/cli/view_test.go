package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// viewed runs view until its page answers, then interrupts it.
func viewed(t *testing.T, args ...string) (code int, line, errs string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- runCommand(ctx, newRoot(), append([]string{"view"}, args...), w, &stderr)
		w.Close()
	}()
	buf := make([]byte, 4096)
	n, _ := r.Read(buf)
	line = string(buf[:n])
	if m := regexp.MustCompile(`http://[^/]*/`).FindString(line); m != "" {
		a, err := http.Get(m)
		if err != nil || a.StatusCode != 200 {
			t.Error(m, a, err)
		} else {
			a.Body.Close()
		}
	}
	stop()
	select {
	case code = <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("view does not end")
	}
	return code, line, stderr.String()
}

// TestViewDocument runs every command of docs/view.md.
func TestViewDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(realdata.Root(t), "docs", "view.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if code, _, errs := call(t, "synth", filepath.Join(dir, "arm50"), "--codec", "png",
		"--episodes", "1"); code != exitDone {
		t.Fatal(errs)
	}
	n := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text),
		-1) {
		for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
			n++
			var args []string
			for _, a := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(strings.ReplaceAll(line,
				"/tmp/", dir+"/"), -1)[1:] {
				if a != "--open" { // would open a browser on the test machine
					args = append(args, strings.Trim(a, "'"))
				}
			}
			if args[0] == "synth" {
				if code, _, errs := call(t, append(args, "--codec", "png")...); code != exitDone {
					t.Error(line, code, errs)
				}
				continue
			}
			code, out, errs := viewed(t, args[1:]...)
			if code != exitDone || !strings.Contains(out, "/#token=") || errs != "" {
				t.Errorf("%s: exit %d, %q, %s", line, code, out, errs)
			}
		}
	}
	if n < 6 {
		t.Errorf("only %d commands", n)
	}
	if code, out, _ := viewed(t, filepath.Join(dir, "arm"), "--json", "--no-token"); code !=
		exitDone || !strings.Contains(out, `"url":"http://127.0.0.1:`) ||
		strings.Contains(out, "token") {
		t.Errorf("%d %q", code, out)
	}
	for _, bad := range [][]string{
		{filepath.Join(dir, "arm"), "--no-token", "--listen", "0.0.0.0:0"},
		{},
		{"a", "b", "c"},
		{filepath.Join(dir, "arm"), "--hz", "x"},
	} {
		if code, _, _ := viewed(t, bad...); code != exitMisuse {
			t.Errorf("%v: exit %d", bad, code)
		}
	}
}
