package lerobot

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// place is what the variables of a path template may stand for.
type place struct {
	episode int64 // episode_index (v2)
	chunk   int64 // chunk_index of the file (v3), or the episode's chunk (v2)
	file    int64 // file_index (v3)
	key     string
}

const maxTemplate = 4096

// checkTemplate refuses a template that no place can make a good path of. It is untrusted input.
func checkTemplate(t string) error {
	p, err := expand(t, place{key: "k"})
	if err != nil {
		return err
	}
	if strings.HasPrefix(p, "/") || strings.Contains(p, "\\") || strings.ContainsRune(p, 0) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Want: "a path below the dataset's root", Got: strconv.Quote(t)}
	}
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Want: "a path below the dataset's root", Got: strconv.Quote(t)}
		}
	}
	return nil
}

// expand fills a Python format template. Only {name} and {name:03d} are known, as in every dataset seen.
func expand(t string, p place) (string, error) {
	bad := func(why string) (string, error) {
		return "", &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Msg: "path template " + strconv.Quote(t) + ": " + why, Hint: "fields such as {chunk_index:03d} are understood"}
	}
	if len(t) > maxTemplate {
		return "", &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Msg: fmt.Sprintf("path template of %d bytes", len(t))}
	}
	var b strings.Builder
	for t0 := t; t0 != ""; {
		i := strings.IndexAny(t0, "{}")
		if i < 0 {
			b.WriteString(t0)
			break
		}
		b.WriteString(t0[:i])
		if i+1 < len(t0) && t0[i+1] == t0[i] { // {{ and }}
			b.WriteByte(t0[i])
			t0 = t0[i+2:]
			continue
		}
		end := strings.IndexByte(t0, '}')
		if t0[i] == '}' || end < 0 {
			return bad("unbalanced braces")
		}
		name, format, _ := strings.Cut(t0[i+1:end], ":")
		t0 = t0[end+1:]
		if name == "video_key" && format == "" {
			b.WriteString(p.key)
			continue
		}
		v := map[string]int64{"episode_chunk": p.chunk, "chunk_index": p.chunk, "episode_index": p.episode, "file_index": p.file}
		n, ok := v[name]
		if !ok {
			return bad("unknown field " + strconv.Quote(name))
		}
		width := 0
		if format != "" {
			digits := strings.TrimSuffix(format, "d")
			w, err := strconv.Atoi(digits)
			if digits == "" {
				w, err = 0, nil
			}
			if err != nil || w < 0 || w > 64 || digits != "" && digits[0] != '0' && w > 0 {
				return bad("unknown format " + strconv.Quote(format))
			}
			width = w
		}
		fmt.Fprintf(&b, "%0*d", width, n)
	}
	if b.Len() > maxTemplate {
		return bad("gives a path that is too long")
	}
	return b.String(), nil
}
