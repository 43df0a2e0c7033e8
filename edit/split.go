package edit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// partShare is one part of a split: a fraction of all episodes, or a list of positions.
type partShare struct {
	name      string
	fraction  float64
	positions []int
}

// splitEpisodes makes a plan for each part.
func (e *editor) splitEpisodes(ctx context.Context, v *Verb) error {
	if v.Flags != "" {
		if err := e.splitByFlags(ctx, v); err != nil {
			return err
		}
		return nil
	}
	if err := e.plan.checkResult(); err != nil {
		return err
	}
	n := len(e.plan.Episodes)
	var names []string
	var parts [][]int
	switch {
	case v.Label != "":
		return misuse(
			nil,
			"a label without a file of flags",
			"Name the file: "+robocache.Option("flags"),
		)
	case v.By != "" && (v.By != "task" || len(v.Into) > 0):
		return misuse(nil, "split: by task, or into parts", "")
	case v.By == "task":
		var err error
		if names, parts, err = e.splitByTask(ctx); err != nil {
			return err
		}
	default:
		shares, err := e.parseShares(v.Into)
		if err != nil {
			return err
		}
		for _, s := range shares {
			names = append(names, s.name)
		}
		if shares[0].positions != nil {
			if v.Seed != nil || v.Stratify != "" || v.Group != "" {
				return misuse(
					nil,
					"split into ranges leaves nothing to deal out",
					"leave seed, stratify and group out",
				)
			}
			for _, s := range shares {
				parts = append(parts, s.positions)
			}
		} else {
			units, err := e.splitUnits(ctx, v)
			if err != nil {
				return err
			}
			parts = dealUnits(units, shares)
		}
	}
	used := 0
	for i, part := range parts {
		if len(part) == 0 {
			return misuse(
				nil,
				fmt.Sprintf(
					"split: no episode is left for %s: %d episodes into %s",
					names[i],
					n,
					strings.Join(v.Into, ","),
				),
				"larger shares, or fewer parts",
			)
		}
		slices.Sort(part)
		used += len(part)
		var episodes []Episode
		for _, k := range part {
			episodes = append(episodes, e.plan.Episodes[k])
		}
		p := e.addPart(names[i], episodes)
		if used < n && i == len(parts)-1 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d episodes are in no part", n-used))
		}
	}
	return nil
}

// addPart adds a part of a split and returns its plan.
func (e *editor) addPart(name string, episodes []Episode) *Plan {
	p := e.plan.clone()
	p.Part, p.Episodes = name, episodes
	e.parts = append(e.parts, p)
	return p
}

// Deal returns the names of the parts of a split and the episode indices of each part, in the
// dataset's order. The verb split uses the same assignment.
func Deal(
	ctx context.Context,
	ds robocache.Dataset,
	v *Verb,
) (names []string, parts [][]int, err error) {
	defer crash.Recover("split", &err)
	e := &editor{req: &Request{}, srcs: []robocache.Dataset{ds}}
	if e.plan, err = newPlan(ctx, e.srcs); err != nil {
		return names, parts, err
	}
	if err := e.splitEpisodes(ctx, v); err != nil {
		return names, parts, err
	}
	for _, p := range e.parts {
		part := make([]int, len(p.Episodes))
		for i, ep := range p.Episodes {
			part[i] = int(ds.Info().EpisodeIndex(ep.Episode))
		}
		names, parts = append(names, p.Part), append(parts, part)
	}
	return names, parts, nil
}

// parseShares parses name=0.8, name=40, name=rest and name=0-79,90.
func (e *editor) parseShares(into []string) (out []partShare, err error) {
	var texts []string
	for part := range strings.SplitSeq(strings.Join(into, ","), ",") {
		if !strings.Contains(part, "=") && len(texts) > 0 {
			texts[len(texts)-1] += "," + part
		} else if part != "" {
			texts = append(texts, part)
		}
	}
	if len(texts) < 2 &&
		!slices.ContainsFunc(texts, func(t string) bool { return strings.ContainsAny(t, "-,") }) {
		return out, misuse(
			nil,
			"split needs the names of its parts",
			robocache.Option("into")+", of parts such as train=0.8,val=0.2 or train=0-79",
		)
	}
	n, numbered := float64(len(e.plan.Episodes)), e.numberedInfo()
	seen, taken := map[string]bool{}, map[int]string{}
	sum, rest, ranges := 0.0, -1, 0
	for i, text := range texts {
		name, what, _ := strings.Cut(text, "=")
		if name == "" || name == "." || name == ".." || seen[name] ||
			strings.ContainsFunc(
				name,
				func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) },
			) {
			return out, misuse(
				nil,
				"split: no name for a part, or twice: "+strconv.Quote(name),
				"it becomes a folder",
			)
		}
		seen[name] = true
		s := partShare{name: name}
		f, err := strconv.ParseFloat(what, 64)
		count, whole := strconv.Atoi(what)
		switch {
		case what == "rest" && rest < 0:
			rest = i
		case whole == nil && count >= 0:
			s.fraction = float64(count) / n
		case err == nil && f > 0 && f <= 1:
			s.fraction = f
		default:
			ranges++
			if s.positions, err = numbered.ParseEpisodes(what); err != nil {
				return out, err
			}
			for _, i := range s.positions {
				if other, ok := taken[i]; ok {
					return out, misuse(
						robocache.Where{"episode": numbered.EpisodeIndex(i)},
						"split: an episode in both "+other+" and "+name,
						"",
					)
				}
				taken[i] = name
			}
		}
		sum += s.fraction
		out = append(out, s)
	}
	switch {
	case ranges > 0 && ranges < len(out):
		return out, misuse(
			nil,
			"split: ranges of episodes, or fractions and counts, not a mixture",
			"",
		)
	case ranges == 0 && (sum > 1+1e-9 || rest < 0 && sum < 1-1e-9):
		return out, misuse(
			nil,
			fmt.Sprintf("split: the parts are %.6g of %g episodes", sum*n, n),
			"every episode goes into one part; name=rest takes those that are left",
		)
	case rest >= 0:
		out[rest].fraction = 1 - sum
	}
	return out, nil
}

// splitUnit is a set of episodes that must go into the same part.
type splitUnit struct {
	stratum   string
	positions []int
}

// splitUnits returns the units in the order in which they are dealt out.
func (e *editor) splitUnits(ctx context.Context, v *Verb) (out []splitUnit, err error) {
	view, err := e.openPlan(ctx)
	if err != nil {
		return out, err
	}
	defer view.Close()
	if v.Stratify != "" && v.Stratify != "task" {
		return out, misuse(nil, "split: stratify by "+v.Stratify, "task")
	}
	at := map[string]int{}
	for i := range e.plan.Episodes {
		u := splitUnit{positions: []int{i}}
		if v.Stratify != "" {
			episode, err := view.Episode(ctx, i)
			if err != nil {
				return out, err
			}
			u.stratum = strings.Join(episode.Tasks, "\n")
		}
		if v.Group != "" {
			value, err := e.groupValue(ctx, view, v.Group, i)
			if err != nil {
				return out, err
			}
			if k, ok := at[value]; ok {
				out[k].positions = append(out[k].positions, i)
				continue
			}
			at[value] = len(out)
		}
		out = append(out, u)
	}
	if v.Seed != nil {
		r := rand.New(rand.NewPCG(*v.Seed, 0x5eed))
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

// groupValue returns the value of a column in the first row of an episode.
func (e *editor) groupValue(
	ctx context.Context,
	v *planDataset,
	key string,
	episode int,
) (string, error) {
	f := v.info.Feature(key)
	row := []robocache.Row{{Episode: episode}}
	switch {
	case key == "task" || f != nil && f.Kind == robocache.KindText:
		text, err := v.Text(ctx, key, row)
		if err != nil {
			return "", err
		}
		return text[0], nil
	case f == nil || f.Kind != robocache.KindNumeric || f.Ragged():
		return "", misuse(
			robocache.Where{"stream": key},
			"split: no column to group by",
			robocache.Nearest(key, v.info.Keys()),
		)
	}
	raw := make([]byte, f.RowBytes())
	if err := v.Gather(ctx, key, row, raw); err != nil {
		return "", err
	}
	return string(raw), nil
}

// dealUnits gives each part its share of every stratum, by largest remainder. Rounding errors of
// one stratum are carried over to the next.
func dealUnits(units []splitUnit, shares []partShare) [][]int {
	strata := map[string][]splitUnit{}
	var order []string
	for _, u := range units {
		if _, ok := strata[u.stratum]; !ok {
			order = append(order, u.stratum)
		}
		strata[u.stratum] = append(strata[u.stratum], u)
	}
	parts, carry := make([][]int, len(shares)), make([]float64, len(shares))
	for _, name := range order {
		size := 0
		for _, u := range strata[name] {
			size += len(u.positions)
		}
		quota := make([]float64, len(shares))
		for i, s := range shares {
			quota[i] = s.fraction*float64(size) + carry[i]
		}
		whole, left := make([]int, len(shares)), size
		for i, q := range quota {
			whole[i] = max(0, int(math.Floor(q+1e-9)))
			left -= whole[i]
		}
		for ; left != 0; left -= sign(left) { // negative if a carry is taken back
			best := 0
			for i := range quota {
				if float64(sign(left))*(quota[i]-float64(whole[i])-quota[best]+
					float64(whole[best])) > 1e-9 && (left > 0 || whole[i] > 0) {
					best = i
				}
			}
			whole[best] += sign(left)
		}
		given := make([]int, len(shares))
		for _, u := range strata[name] {
			best := 0 // the first part with enough space, else the one with most space
			for i := range shares {
				if whole[i]-given[i] >= len(u.positions) {
					best = i
					break
				}
				if whole[i]-given[i] > whole[best]-given[best] {
					best = i
				}
			}
			given[best] += len(u.positions)
			parts[best] = append(parts[best], u.positions...)
		}
		for i := range shares {
			carry[i] = quota[i] - float64(given[i])
		}
	}
	return parts
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// splitByTask returns one part for each task, named after it.
func (e *editor) splitByTask(ctx context.Context) (names []string, parts [][]int, err error) {
	v, err := e.openPlan(ctx)
	if err != nil {
		return names, parts, err
	}
	defer v.Close()
	at, taken := map[string]int{}, map[string]bool{}
	for i := range e.plan.Episodes {
		episode, err := v.Episode(ctx, i)
		if err != nil {
			return names, parts, err
		}
		task := strings.Join(episode.Tasks, " ")
		k, ok := at[task]
		if !ok {
			k = len(parts)
			at[task] = k
			names = append(names, folderName(task, fmt.Sprintf("task-%d", k), taken))
			parts = append(parts, nil)
		}
		parts[k] = append(parts[k], i)
	}
	return names, parts, nil
}

// folderName returns an unused folder name made of the letters and digits of a text, and marks it
// as taken. It uses fallback if the text has no such characters, or too many.
func folderName(text, fallback string, taken map[string]bool) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, text), "-")
	if len(name) > 60 || name == "" {
		name = fallback
	}
	for base, n := name, 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	taken[name] = true
	return name
}
