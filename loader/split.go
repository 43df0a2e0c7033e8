package loader

import (
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// chooseSplit puts the episodes of the split into the configuration: of the one that is asked for, else of the one for training. note says
// what was chosen without being asked for.
func (c *Config) chooseSplit(info *robocache.Info) (note string, err error) {
	switch {
	case c.Split == robocache.SplitAll, c.Split == "" && c.Compat == "lerobot": // whose class reads all
		return "", nil
	case c.Split != "" && c.Episodes != nil:
		return "", &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "split and episodes: episodes are positions in the whole dataset", Hint: "give one of them; positions in a split are those of the dataset that was opened with it"}
	case c.Split != "" && c.Split == info.Split:
		return "", nil
	case c.Split != "":
		if c.Episodes, err = info.SplitEpisodes(c.Split); err == nil && len(c.Episodes) == 0 {
			err = &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"dataset": info.URI}, Msg: "the split " + c.Split + " has no episodes"}
		}
		return "", err
	case c.Episodes != nil:
		return "", nil
	}
	name, episodes := info.TrainSplit()
	if name == "" {
		return "", nil
	}
	c.Episodes = episodes
	return fmt.Sprintf("%s: the split %s is read, %d of %d episodes; split=\"all\" reads all, others are %s", info.URI, name, len(episodes), info.Episodes, strings.Join(others(info, name), ", ")), nil
}

func others(info *robocache.Info, name string) (out []string) {
	for _, n := range info.SplitNames() {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

// Notes says what the loader chose without being asked for: the split for training.
func (l *Loader) Notes() []string { return l.a.notes }

// Notes says what the map chose without being asked for: the split for training.
func (m *Map) Notes() []string { return m.a.notes }
