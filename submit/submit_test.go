package submit

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// standIn is a worker for tests. $DIR/plan holds the number of shards, $DIR/codes/I the exit codes
// of the attempts of shard I (then 0), and $DIR/log the calls. It writes receipts, and commit
// requires all of them.
const standIn = `#!/bin/sh
dir='%s'
verb=$1; shift
while [ $# -gt 0 ]; do case $1 in --manifest) manifest=$2; shift;; --shard) shard=$2; shift;; --partial) partial=1;; esac; shift; done
[ "$manifest" = "$dir/plan" ] || { echo "robocache: not found: $manifest" >&2; exit 10; }
total=$(cat "$dir/plan")
missing=; i=0; n=0
while [ $i -lt "$total" ]; do [ -e "$dir/receipts/$i" ] && n=$((n+1)) || missing="$missing${missing:+,}$i"; i=$((i+1)); done
case $verb in
status) echo "{\"total\": $total, \"done\": $n, \"missing\": \"$missing\"}"; [ $n = "$total" ] || exit 75 ;;
run)
  echo "run $shard" >> "$dir/log"; echo "$GOMAXPROCS" >> "$dir/cores"
  trap 'echo "asked $shard" >> "$dir/log"; kill $!; exit 75' TERM
  [ -e "$dir/receipts/$shard" ] && exit 0
  sleep "$(cat "$dir/sleep" 2>/dev/null || echo 0)" & wait $!
  code=$(head -1 "$dir/codes/$shard" 2>/dev/null || echo 0)
  sed -i 1d "$dir/codes/$shard" 2>/dev/null
  case ${code:=0} in 0|3) echo "$(date +%%s) $SLURMD_NODENAME $SLURM_RESTART_COUNT" > "$dir/receipts/$shard";; kill) kill -9 $$;; *) echo "robocache: shard says $code" >&2;; esac
  exit "$code" ;;
commit)
  echo "commit partial=$partial" >> "$dir/log"
  [ -z "$missing" ] || [ -n "$partial" ] || { echo "robocache: missing: $missing" >&2; exit 75; }
  echo "{\"num_episodes\": 1, \"findings\": [{\"severity\": \"warning\", \"code\": \"cut-file\"}]}"
  [ ! -e "$dir/skipped" ] || exit 3 ;;
esac
`

func worker(t *testing.T, shards int, codes map[int]string) (dir string, program []string) {
	t.Helper()
	dir = t.TempDir()
	for _, sub := range []string{"receipts", "codes"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "robo cache"), fmt.Sprintf(standIn, dir))
	put(t, filepath.Join(dir, "plan"), fmt.Sprint(shards))
	for i, c := range codes {
		put(t, filepath.Join(dir, "codes", fmt.Sprint(i)), strings.ReplaceAll(c, " ", "\n")+"\n")
	}
	return dir, []string{filepath.Join(dir, "robo cache")}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, dir string, program []string) Plan {
	t.Helper()
	p, err := Look(t.Context(), program, filepath.Join(dir, "plan"))
	if err != nil {
		t.Fatal(err)
	}
	return *p
}

func calls(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

func TestLocal(t *testing.T) {
	dir, program := worker(t, 9, map[int]string{2: "75 75", 4: "3", 5: "kill", 6: "1"})
	put(t, filepath.Join(dir, "receipts", "7"), "")
	var errs bytes.Buffer
	ends := 0
	l := &Local{
		Plan:    look(t, dir, program),
		Jobs:    3,
		Threads: 2,
		Retries: 2,
		Pause:   time.Millisecond,
		Stderr:  &errs,
	}
	findings, err := l.Run(t.Context(), func(States) { ends++ })
	if err != nil || findings {
		t.Fatalf("%v %v\n%s", findings, err, &errs)
	}
	s := l.States()
	if s.Done != 9 || s.Failed+s.Waiting+s.Running != 0 || s.Retries != 4 || s.Findings != 1 ||
		!s.Committed ||
		fmt.Sprint(s.Codes) != "map[1:1 75:2 signal:1]" ||
		ends != 8 {
		t.Errorf("%+v, %d ends", s, ends)
	}
	log := calls(t, dir)
	if count(log, "run 2") != 3 || count(log, "run 7") != 0 || count(log, "run 5") != 2 ||
		log[len(log)-1] != "commit partial=" {
		t.Errorf("%v", log)
	}
	if !strings.Contains(errs.String(), "shard 2: robocache: shard says 75\n") {
		t.Errorf("%q", errs.String())
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cores")); err != nil ||
		string(b) != strings.Repeat("2\n", 12) && os.Getenv("GOMAXPROCS") == "" {
		t.Errorf("%v: %q", err, b)
	}
	put(t, filepath.Join(dir, "skipped"), "")
	l = &Local{Plan: look(t, dir, program), Jobs: 2}
	if findings, err := l.Run(t.Context(), func(States) {}); !findings || err != nil {
		t.Errorf("a commit with findings: %v %v", findings, err)
	}
	if c := l.States().Commit; c == nil || len(c.Findings) != 1 ||
		c.Findings[0].Code != "cut-file" {
		t.Errorf("the answer lacks what the commit reported: %+v", c)
	}
}

// TestLocalStopsOnFinal checks that no shard starts after a final failure, and that running shards
// are asked to stop. With Partial, the others continue (submit.S3).
func TestLocalStopsOnFinal(t *testing.T) {
	for _, code := range Final {
		dir, program := worker(t, 40, map[int]string{0: fmt.Sprint(code)})
		put(t, filepath.Join(dir, "sleep"), "0.2")
		l := &Local{Plan: look(t, dir, program), Jobs: 2, Retries: 5, Pause: time.Millisecond}
		_, err := l.Run(t.Context(), func(States) {})
		var f *Failed
		if !errors.As(err, &f) || f.Code != code || f.ExitCode() != code || f.Shard != 0 ||
			f.Tries != 1 ||
			f.Last != fmt.Sprintf("shard says %d", code) {
			t.Errorf("%d: %v", code, err)
		}
		if log := calls(t, dir); len(log) > 8 || count(log, "commit partial=") > 0 {
			t.Errorf("%d: %v", code, log)
		}
	}
	dir, program := worker(t, 5, map[int]string{0: "42", 3: "75 75"})
	l := &Local{
		Plan:    look(t, dir, program),
		Jobs:    2,
		Retries: 1,
		Pause:   time.Millisecond,
		Partial: true,
	}
	if _, err := l.Run(t.Context(), func(States) {}); err != nil {
		t.Error(err)
	}
	if s := l.States(); s.Done != 3 || s.Failed != 2 || !s.Committed ||
		count(calls(t, dir), "commit partial=1") != 1 {
		t.Errorf("%+v", s)
	}
}

func TestLocalPassesSignalsOn(t *testing.T) {
	dir, program := worker(t, 6, nil)
	put(t, filepath.Join(dir, "sleep"), "60")
	l := &Local{Plan: look(t, dir, program), Jobs: 3}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for l.States().Running < 3 || len(calls(t, dir)) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // for the traps
		cancel()
	}()
	put(t, filepath.Join(dir, "log"), "")
	begin := time.Now()
	if _, err := l.Run(
		ctx,
		func(States) {},
	); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "with 0 of 6 shards done") {
		t.Error(err)
	}
	if s := l.States(); s.Waiting != 6 || s.Failed != 0 || time.Since(begin) > Grace {
		t.Errorf("%+v after %v", s, time.Since(begin))
	}
	log := calls(t, dir)
	if slices.Sort(log); count(log, "asked 0")+count(log, "asked 1")+count(log, "asked 2") != 3 ||
		len(log) != 6 {
		t.Errorf("%q", log)
	}
}

func TestLook(t *testing.T) {
	dir, program := worker(t, 3, nil)
	var f *Failed
	if _, err := Look(t.Context(), program, dir+"/none"); !errors.As(err, &f) || f.Code != 10 ||
		!strings.Contains(f.Last, "not found") {
		t.Error(err)
	}
	if _, err := Look(t.Context(), []string{dir + "/none"}, "m"); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	if _, err := Look(t.Context(), []string{"true"}, "m"); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		put(t, path, string(got))
		_ = os.Chmod(path, 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%s: %v\n%s", path, err, got)
	}
}

func TestSlurmScripts(t *testing.T) {
	missing := []int{0, 1, 2, 5, 998, 999}
	for i := 1000; i < 2000; i++ {
		missing = append(missing, i)
	}
	s := &Slurm{
		Plan: Plan{
			[]string{"/opt/robo cache/robocache"},
			"/data/it's a $plan.json",
			2100,
			append(missing, 2099),
			"",
		},
		Name:     "robocache",
		Logs:     "logs",
		Parallel: 64,
		Retries:  5,
		MaxArray: 1000,
		Sbatch:   []string{"--partition=cpu", "--comment=it's"},
		Array:    []string{"--gpus=1"},
		Out:      filepath.Join(t.TempDir(), "a b"),
	}
	if err := s.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"array.sh", "commit.sh", "submit.sh"} {
		b, err := os.ReadFile(filepath.Join(s.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		if out, err := exec.Command("sh", "-n", filepath.Join(s.Out, name)).
			CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
