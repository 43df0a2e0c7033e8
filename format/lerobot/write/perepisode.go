package write

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// episodesVersion is the version of LeRobot that has files per episode and metadata in lines of
// JSON. GR00T and openpi read it.
const episodesVersion = "v2.1"

// perEpisode reports whether each episode has a table, and an mp4 of each camera.
func (c *Config) perEpisode() bool { return c.Version == episodesVersion }

// fileName returns the name of a numbered file. pattern is a format with %d for the number of the
// chunk and %s for the name of the file.
func (c *Config) fileName(pattern string, chunk, file int) string {
	name := fmt.Sprintf("file-%03d", file)
	if c.perEpisode() {
		name = fmt.Sprintf("episode_%06d", chunk*c.ChunksSize+file)
	}
	return fmt.Sprintf(pattern, chunk, name)
}

// episodeFiles are the files of episodeLines.
var episodeFiles = []string{"meta/episodes.jsonl", "meta/episodes_stats.jsonl"}

// episodeLines writes the lines that v2.1 has in place of meta/episodes.
type episodeLines struct {
	writer *Writer
	files  []store.Writer // episodeFiles; none before the first episode
}

// writeRows appends a line per episode to each file.
func (e *episodeLines) writeRows(ctx context.Context, rows []*writtenEpisode) error {
	for _, name := range episodeFiles[len(e.files):] {
		e.writer.recordFile(name)
		out, err := e.writer.dst.Create(ctx, name)
		if err != nil {
			return robocache.At(err, robocache.Where{"file": name})
		}
		e.files = append(e.files, out)
	}
	for _, r := range rows {
		values, err := e.statistics(r)
		if err != nil {
			return err
		}
		for i, line := range []jsonObject{
			{{"episode_index", r.index}, {"tasks", r.tasks}, {"length", r.length}},
			{{"episode_index", r.index}, {"stats", values}},
		} {
			text, err := jsonMarshal(line)
			if err == nil {
				_, err = e.files[i].Write(append(text, '\n'))
			}
			if err != nil {
				return robocache.At(err, robocache.Where{"file": episodeFiles[i]})
			}
		}
	}
	return nil
}

// statistics returns the statistics of an episode, without quantiles, which v2.1 does not have.
func (e *episodeLines) statistics(r *writtenEpisode) (json.RawMessage, error) {
	all := robocache.Stats{}
	for key, fs := range r.stats {
		if fs != nil {
			part := *fs
			part.Quantiles = nil
			all[key] = &part
		}
	}
	return stats.Marshal(all)
}

// endFile completes both files.
func (e *episodeLines) endFile() error {
	for i, out := range e.files {
		if err := out.Commit(); err != nil {
			return robocache.At(err, robocache.Where{"file": episodeFiles[i]})
		}
	}
	return nil
}

// abortFile removes both files.
func (e *episodeLines) abortFile() {
	for _, out := range e.files {
		out.Abort()
	}
}

// lastFile returns zeros, because the files have no numbers.
func (e *episodeLines) lastFile() (chunk, file int) { return 0, 0 }

// writeTaskLines writes meta/tasks.jsonl.
func (w *Writer) writeTaskLines(ctx context.Context) error {
	var b bytes.Buffer
	for i, text := range w.texts {
		line, err := jsonMarshal(jsonObject{{"task_index", i}, {"task", text}})
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	return w.putFile(ctx, "meta/tasks.jsonl", b.Bytes())
}

// episodePaths converts the fields of info.json from v3.0 to v2.1. The limits of file sizes become
// totals, and the paths those of files per episode.
func (w *Writer) episodePaths(info jsonObject) (out jsonObject) {
	n := w.episodeCount()
	for _, field := range info {
		switch field.key {
		case "data_files_size_in_mb":
			field = jsonField{"total_videos", n * len(w.cameraKeys)}
		case "video_files_size_in_mb":
			field = jsonField{"total_chunks", (n + w.cfg.ChunksSize - 1) / w.cfg.ChunksSize}
		case "data_path":
			field.value = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
		case "video_path":
			if field.value != nil {
				field.value = "videos/chunk-{episode_chunk:03d}/{video_key}/" +
					"episode_{episode_index:06d}.mp4"
			}
		}
		out = append(out, field)
	}
	return out
}
