package edit

import (
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// checkAllStreams returns an error if an episode of the result lacks a stream. It is called for
// formats whose episodes must all have the same streams. The hint names a command that deletes the
// lacking episodes of one source. Its list includes the episodes that the request already deletes,
// so that the command can replace the request.
func (v *planDataset) checkAllStreams(deleted []int64) error {
	var where robocache.Where
	source := 0
	numbers := slices.Clone(deleted)
	for e, p := range v.plan.Episodes {
		if where != nil && p.Source != source {
			continue // the hint is for the source of the first lacking episode
		}
		i := slices.IndexFunc(
			v.info.Features,
			func(f robocache.Feature) bool { return v.Lacks(e, f.Key) },
		)
		if i < 0 {
			continue
		}
		info := v.srcs[p.Source].Info()
		numbers = append(numbers, info.EpisodeIndex(p.Episode))
		if where == nil {
			source = p.Source
			where = robocache.Where{
				"dataset": info.URI,
				"episode": info.EpisodeIndex(p.Episode),
				"stream":  v.info.Features[i].Key,
			}
		}
	}
	if where == nil {
		return nil
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	toDelete := robocache.Info{Episodes: len(numbers)}
	toDelete.NumberEpisodes(numbers)
	hint := "leave the stream out: " + robocache.Command("edit remove") + "; or such episodes: " +
		robocache.Command("edit delete")
	if ranges := toDelete.EpisodeRanges(); !strings.HasSuffix(ranges, "…") {
		hint = "leave such episodes out: " +
			robocache.Command("edit delete --episodes=%s", ranges) + "; or the stream: " +
			robocache.Command("edit remove")
	}
	return robocache.Malformed(
		"edit",
		where,
		"the episode lacks this stream, other episodes have it, and %s keeps the same streams "+
			"in every episode",
		v.plan.Format,
	).WithHint("%s", hint)
}
