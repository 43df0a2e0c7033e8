package reader

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// videoEndings lists the endings of video files.
var videoEndings = []string{".mp4", ".mkv", ".avi", ".mov", ".webm", ".ts", ".m4v"}

// dataEndings lists the endings of other files that may hold data of a recording.
var dataEndings = []string{
	".hdf5", ".h5", ".mcap", ".db3", ".bag", ".npy", ".npz", ".pkl", ".csv", ".parquet",
	".pcd", ".ply", ".wav", ".png", ".jpg", ".jpeg",
}

// maxNamed bounds how many files a finding names.
const maxNamed = 4

// Loose collects the data files of a folder that its reader does not use.
type Loose struct{ byEnding map[string][]string }

// Add records a file that the reader does not use, if it may hold data.
func (l *Loose) Add(name string) {
	ending := strings.ToLower(path.Ext(name))
	base := "." + path.Base(name)
	isResult := strings.HasSuffix(base, ".quality.parquet") ||
		strings.HasSuffix(base, ".embeddings.parquet")
	if isResult {
		return // about the recordings: see packages quality and query
	}
	hidden := strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
		strings.Contains(name, "/.")
	if hidden || !slices.Contains(videoEndings, ending) && !slices.Contains(dataEndings, ending) {
		return
	}
	if l.byEnding == nil {
		l.byEnding = map[string][]string{}
	}
	l.byEnding[ending] = append(l.byEnding[ending], name)
}

// AddTwins records video files whose names differ from that of a recording only in the ending.
func (l *Loose) AddTwins(ctx context.Context, s store.Store, name string) {
	if robocache.IsRemote(s) {
		return
	}
	stem := strings.TrimSuffix(name, path.Ext(name))
	for _, ending := range videoEndings {
		if _, err := s.Stat(ctx, stem+ending); err == nil {
			l.Add(stem + ending)
		}
	}
}

// Findings reports the files, with one finding per ending.
func (l *Loose) Findings() (out []robocache.Finding) {
	for _, ending := range slices.Sorted(maps.Keys(l.byEnding)) {
		names := l.byEnding[ending]
		slices.Sort(names)
		f := robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "unread-files",
			Where:    robocache.Where{"file": names[0]},
			Message: fmt.Sprintf(
				"%d %s files are among the recordings but are not read: %s",
				len(names),
				ending,
				strings.Join(names[:min(len(names), maxNamed)], ", "),
			),
			Hint:  "Write their content into the recordings, or move the files away",
			Count: int64(len(names)),
		}
		if len(names) > maxNamed {
			f.Message += ", …"
		}
		if slices.Contains(videoEndings, ending) {
			f.Severity = robocache.SeverityWarning
		}
		out = append(out, f)
	}
	return out
}
