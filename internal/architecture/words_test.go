package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gone are words that the code and the documents once had for what the field has other words for, each with the word of today.
var gone = map[string]string{
	"picture": "frame (of a video) or image (still)", "stamp": "timestamp", "mend": "hint", "house": "architecture", "judge": "reference reader",
	"contestant": "runner", "entrant": "case", "reel": "video file", "runway": "admission limiter", "loan": "lease", "lender": "lease", "borrower": "lease",
	"patience": "deadline", "crew": "worker group", "crowd": "ragged budget", "rewire": "deferred device op", "afresh": "restart",
}

// kept are the files that hold some of these words for good: names of files and options of earlier versions that are still read, and words of others.
var kept = map[string][]string{
	"dataset.go":                      {"mend"},             // an earlier key of a finding, which is still written
	"docs/formats/rosbag2.md":         {"stamp"},            // header.stamp of ROS messages, here and in format/ros2
	"format/internal/bag/clocks.go":   {"stamp"},            //
	"format/ros2/generic.go":          {"stamp"},            //
	"format/ros2/schema_msg.go":       {"stamp"},            //
	"format/ros2/topic.go":            {"stamp"},            //
	"format/ros2/tree.go":             {"stamp"},            //
	"bench/runners/formats.py":        {"stamp"},            //
	"docs/formats/mcap.md":            {"picture"},          // of a codec: group of pictures, picture parameter set
	"format/mcap/write_video.go":      {"picture"},          //
	"video/stream.go":                 {"picture"},          //
	"video/nvdec/library.go":          {"picture"},          // a function of the driver's library
	"format/lerobot/write/prepare.go": {"picture"},          // a key of files of earlier versions
	"format/rlds/info.go":             {"stamp"},            //
	"format/rlds/write.go":            {"stamp"},            //
	"loader/stats.go":                 {"picture"},          // keys of statistics under their earlier names
	"internal/cli/bench.go":           {"picture"},          // flags under their earlier names
	"internal/cli/convert.go":         {"picture"},          //
	"mapping/parse.go":                {"stamp"},            // keys of mappings under their earlier names
	"open.go":                         {"picture", "stamp"}, // options of formats under their earlier names
}

// The private words of earlier versions do not come back into product code and documents: identifiers, comments, messages.
func TestWords(t *testing.T) {
	root := filepath.Join("..", "..")
	product := regexp.MustCompile(`\.(go|py|c|h|cu|s|sh|md)$`)
	part := regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`) // of an identifier, or a word
	used := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"tests", "testdata", "results", "bin", "build", "dist", "_lib", "bench-out"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !product.MatchString(name) || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test_") || name == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, _ := filepath.Rel(root, path)
		file = filepath.ToSlash(file)
		for i, line := range strings.Split(string(text), "\n") {
			for _, w := range part.FindAllString(line, -1) {
				w = strings.ToLower(w)
				if _, ok := gone[w]; !ok {
					w = strings.TrimSuffix(w, "s")
				}
				switch better, ok := gone[w]; {
				case !ok:
				case slices.Contains(kept[file], w):
					used[file] = append(used[file], w)
				default:
					t.Errorf("%s:%d: %q: say %s", file, i+1, w, better)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, words := range kept {
		for _, w := range words {
			if !slices.Contains(used[file], w) {
				t.Errorf("%s has no %q any more: take it out of the list of exceptions", file, w)
			}
		}
	}
}
