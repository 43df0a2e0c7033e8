package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

// trainer returns the project's interpreter. It skips the test if torch or our library is missing.
func trainer(t *testing.T) string {
	t.Helper()
	root, py := realdata.Root(t), realdata.Python(t, "torch", "pyarrow", "av")
	if !fileExists(filepath.Join(root, "python", "robocache", "_lib", "librobocache.so")) {
		t.Skip("make lib")
	}
	t.Setenv("PYTHONPATH", filepath.Join(root, "python"))
	return py
}

// The small networks train on the CPU. All runners have the same weights, order, batches and
// losses. The report has plots, and complete runs do not run again.
func TestBenchTrain(t *testing.T) {
	py, dir := trainer(t), t.TempDir()
	set, out := filepath.Join(dir, "set"), filepath.Join(dir, "out")
	if _, err := synth.Write(t.Context(), set,
		synth.Options{Episodes: 4, Seconds: 1, Cameras: 1, Width: 96, Height: 96}); err != nil {
		t.Skip("no encoder: ", err)
	}
	line := []string{
		"train",
		set,
		"--python",
		py,
		"--model",
		"diffusion",
		"--device",
		"cpu",
		"--tiny",
		"--batch-size",
		"4",
		"--steps",
		"8",
		"--warmup",
		"4",
		"--workers",
		"1",
		"--runners",
		"torch,robocache,robocache-ram",
		"--repeats",
		"1",
		"--precision",
		"fp32",
		"--out",
		out,
	}
	code, text, errs := call(t, line...)
	if code != exitDone {
		t.Fatalf("exit %d: %s\n%s", code, errs, text)
	}
	rows := readRow(t, filepath.Join(out, "train.json"))["rows"].([]any)
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	first := rows[1].(map[string]any)
	for i, name := range []string{"headspace", "torch", "robocache", "robocache-ram"} {
		r := rows[i].(map[string]any)
		if r["arm"] != name || r["failed"] != "" ||
			r["weights_sha256"] != first["weights_sha256"] ||
			r["samples_per_s"].(float64) <= 0 ||
			r["starve_ms"] == nil ||
			r["utilisation"] == nil ||
			r["gpu_reason"] == "" {
			t.Errorf("%v", r)
		}
		if i > 0 &&
			(r["batches_checked"] != 3.0 || r["batches_wrong"] != 0.0 ||
				r["order_sha256"] != first["order_sha256"] || r["loss_rel_diff"].(float64) > 1e-3) {
			t.Errorf(
				"%s: %v checked, %v wrong, losses differ by %v",
				name,
				r["batches_checked"],
				r["batches_wrong"],
				r["loss_rel_diff"],
			)
		}
	}
	for _, name := range []string{
		"throughput_comparison",
		"latency_comparison",
		"speedup_comparison",
		"step_breakdown",
		"loss_curves",
	} {
		if b, err := os.ReadFile(filepath.Join(out, name+".png")); err != nil || colours(t, b) < 3 {
			t.Errorf("%s: %v, an empty plot", name, err)
		}
		if b, err := os.ReadFile(filepath.Join(out, name+".svg")); err != nil ||
			bytes.Count(b, []byte("<path")) < 8 {
			t.Errorf("%s.svg: %v", name, err)
		}
	}
	page, _ := os.ReadFile(filepath.Join(out, "train.html"))
	if bytes.Count(page, []byte("<svg")) != 5 || bytes.Contains(page, []byte("src=")) {
		t.Error("train.html is not whole")
	}
	old := readRow(t, filepath.Join(out, "training_benchmark_results.json"))
	if old["baseline"] == nil || old["robocache"].(map[string]any)["samples"] != 32.0 ||
		old["comparison"].(map[string]any)["total_speedup"] == nil {
		t.Errorf("%v", old)
	}
	if b, err := os.ReadFile(filepath.Join(out, "train_steps.csv")); err != nil ||
		bytes.Count(b, []byte("\nrobocache,")) < 7 {
		t.Errorf("train_steps.csv: %v", err)
	}
	// It was interrupted in its last run, so the others do not run again.
	name := filepath.Join(out, "rows.jsonl")
	kept, _ := os.ReadFile(name)
	if bytes.Count(kept, []byte("\n")) != 5 {
		t.Errorf("rows.jsonl has %d lines", bytes.Count(kept, []byte("\n")))
	}
	if err := os.WriteFile(name, kept[:len(kept)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, append(line, "--resume")...); code != exitDone {
		t.Errorf("resumed: exit %d: %s", code, errs)
	}
	again, _ := os.ReadFile(name)
	if !bytes.HasPrefix(again, kept[:len(kept)-100]) || bytes.Count(again, []byte("\n")) != 6 {
		t.Error("a run that was over was run again")
	}
	if code, text, _ := call(t, "train", "--from", filepath.Join(out, "train.json"), "--out",
		filepath.Join(dir, "again")); code != exitDone || !strings.Contains(text, "robocache-ram") {
		t.Errorf("--from: exit %d: %s", code, text)
	}
}

func colours(t *testing.T, b []byte) int {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[3]uint32]bool{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			if r != g || g != b {
				seen[[3]uint32{r, g, b}] = true
			}
		}
	}
	return len(seen)
}

// Bad input is reported in one line, with its exit code.
func TestBenchTrainBadInput(t *testing.T) {
	py, dir := trainer(t), t.TempDir()
	set := filepath.Join(dir, "set.hdf5")
	if _, err := synth.Write(t.Context(), set,
		synth.Options{Format: "robomimic", Preset: "heterogeneous", Episodes: 2}); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "train.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	low := []string{set, "--model", "diffusion-lowdim", "--python", py}
	for _, c := range []struct {
		say  string
		code int
		args []string
	}{
		{`no model named "resnet"`, exitMisuse, []string{set, "--model", "resnet"}},
		{`no mode named "both"`, exitMisuse, append(low, "--mode", "both")},
		{`no runner named "jax"`, exitMisuse, append(low, "--runners", "jax")},
		{`no precision named "int8"`, exitMisuse, append(low, "--precision", "int8")},
		{
			"inductor's C++ of these networks takes minutes",
			12,
			append(low, "--compile", "--device", "cpu", "--tiny"),
		},
		{
			"--graph is of one GPU, without --compile",
			exitMisuse,
			append(low, "--graph", "--gpus", "2"),
		},
		{"expected 1 or more", exitMisuse, append(low, "--steps", "0")},
		{"--resume: expected --out DIR", exitMisuse, append(low, "--resume")},
		{"no rows of robocache-bench train", 11, []string{"--from", empty}},
		{"this set has no camera", exitMisuse, []string{set}},
		{
			"an epoch of 174 samples holds no batch",
			exitMisuse,
			append(low, "--batch-size", "10000"),
		},
		{"0 CUDA devices found, 1 requested", 12, append(low, "--batch-size", "4")},
		{"python3 has no '", 12, append(low, "--python", "/usr/bin/python3")},
	} {
		if gpus, _ := filepath.Glob("/dev/nvidia[0-9]*"); strings.Contains(c.say, "CUDA") &&
			len(gpus) > 0 {
			continue
		}
		code, _, errs := call(t, append([]string{"train"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.say) || strings.Count(errs, "\n") > 2 {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
}

// Peers that decode on a GPU, on a machine without one. torchcodec receives files and frame
// numbers, and its batches are right. A missing module is reported, and is not a failure. The
// option decode reaches the Loader, which reports that a CPU has no video engines.
func TestBenchTrainVideoPeers(t *testing.T) {
	py, dir := trainer(t), t.TempDir()
	realdata.Python(t, "torchcodec")
	set, out := filepath.Join(dir, "set"), filepath.Join(dir, "out")
	if _, err := synth.Write(t.Context(), set,
		synth.Options{Episodes: 3, Seconds: 1, Cameras: 1, Width: 96, Height: 96}); err != nil {
		t.Skip("no encoder: ", err)
	}
	line := []string{
		"train",
		set,
		"--python",
		py,
		"--model",
		"resnet18",
		"--device",
		"cpu",
		"--tiny",
		"--batch-size",
		"4",
		"--steps",
		"8",
		"--warmup",
		"4",
		"--workers",
		"2",
		"--repeats",
		"1",
		"--precision",
		"fp32",
		"--out",
		out,
		"--decode",
		"gpu",
		"--runners",
		"torchcodec-cuda,dali,robocache,robocache-gpu",
	}
	code, text, errs := call(t, line...)
	_, wrong, _ := strings.Cut(errs, "robocache-bench train: ")
	if code != exitFailed || !strings.HasPrefix(wrong,
		"robocache: Misuse: Device.decode='gpu' with device='cpu'") || !strings.Contains(wrong,
		"; robocache-gpu: Misuse: Device.decode='gpu' with device='cpu'") || strings.Contains(wrong,
		"dali") {
		t.Fatalf("exit %d: %s\n%s", code, errs, text)
	}
	rows := readRow(t, filepath.Join(out, "train.json"))["rows"].([]any)
	if r := rows[1].(map[string]any); r["arm"] != "torchcodec-cuda" || r["failed"] != "" ||
		r["batches_checked"] != 3.0 ||
		r["batches_wrong"] != 0.0 ||
		r["order_sha256"] == "" {
		t.Errorf("%v", r)
	}
	if r := rows[2].(map[string]any); r["arm"] != "dali" ||
		!strings.Contains(r["failed"].(string), "No module named 'nvidia") &&
			!strings.Contains(r["failed"].(string), "on a GPU") {
		t.Errorf("%v", r)
	}
	if code, text, errs := call(t, "load", set, "--python", py, "--runners", "robocache",
		"--decode", "gpu", "--duration", "1s", "--resume=false"); code != exitFailed ||
		!strings.Contains(text+errs, "decode='gpu' with device='cpu'") {
		t.Errorf("exit %d: %s %s", code, errs, text)
	}
	for _, c := range []struct{ say, runners, device, decode string }{
		{"--device: expected cpu, or cuda with --runners robocache only", "engine", "cuda", "gpu"},
		{"--decode: expected cpu, gpu or auto", "robocache", "cpu", "gpus"},
	} {
		if code, _, errs := call(t, "load", set, "--runners", c.runners, "--device", c.device,
			"--decode", c.decode); code != exitMisuse || !strings.Contains(errs, c.say) {
			t.Errorf("exit %d: %s", code, errs)
		}
	}
}
