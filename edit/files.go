package edit

import (
	"context"
	"os"
	"path"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// unchangedFiles returns the source files that make up the whole result, if the result can be
// copied file by file. This is possible if each recording is either left out or kept with all its
// episodes unchanged and in order. Otherwise it returns nil, and a writer must write the result.
func (e *editor) unchangedFiles(ctx context.Context, p *Plan) (files []store.Entry) {
	src := e.srcs[0]
	recording := src.Capabilities().Recording
	from, stored := robocache.As[store.Source](src)
	if recording == nil || !stored || len(e.srcs) > 1 || e.req.To != "" || p.Video != nil {
		return nil
	}
	keys := 0
	for _, f := range src.Info().Features {
		if !f.Default {
			keys++
		}
	}
	isChanged := func(k Key) bool { return k.Added != nil || k.Key != k.From[0] }
	if len(p.Keys) != keys || slices.ContainsFunc(p.Keys, isChanged) {
		return nil
	}
	all := map[string]int{}  // episodes of each recording
	left := map[string]int{} // episodes of each recording in the plan
	for ep := range src.Info().Episodes {
		all[recording(ep)]++
	}
	for i, ep := range p.Episodes {
		isCut := ep.From > 0 || ep.To < src.Len(ep.Episode)
		isRelabeled := len(ep.Texts)+len(ep.Rows)+len(ep.Language) > 0
		isMoved := i > 0 && ep.Episode <= p.Episodes[i-1].Episode
		if isCut || isRelabeled || isMoved {
			return nil
		}
		left[recording(ep.Episode)]++
	}
	dir, local := store.LocalPath(src.Info().URI)
	if i, err := os.Stat(dir); local && (err != nil || !i.IsDir()) {
		return nil // the dataset is one file, and its folder may hold other files
	}
	list, err := from.Store().List(ctx, "")
	if err != nil {
		return nil
	}
	listed := map[string]bool{}
	for _, f := range list {
		inRecording, inKept := false, false
		for at := f.Name; ; at = path.Dir(at) { // a recording is a file or a folder
			inRecording = inRecording || all[at] > 0
			inKept = inKept || left[at] > 0
			listed[at] = true
			if at == "." {
				break
			}
		}
		// Of the files that belong to no recording, an edit in place keeps all.
		if inKept || !inRecording && (e.req.InPlace || slices.Contains(carriedFiles, f.Name)) {
			files = append(files, f)
		}
	}
	for name, n := range left {
		if n != all[name] || !listed[name] {
			return nil
		}
	}
	return files
}

// copyFiles copies the files of a plan to dst. On error it removes the files that it copied.
func (e *editor) copyFiles(ctx context.Context, p *Plan, dst string) error {
	from, _ := robocache.As[store.Source](e.srcs[0])
	to, err := store.OpenWritable(dst)
	if err != nil {
		return err
	}
	defer store.Close(to)
	done := 0
	defer func() {
		if done < len(p.files) {
			for _, f := range p.files[:done] {
				_ = to.Remove(context.WithoutCancel(ctx), f.Name)
			}
		}
	}()
	for i, f := range p.files {
		in, err := from.Store().Open(ctx, f.Name)
		if err != nil {
			return err
		}
		err = func() (err error) {
			defer in.Close()
			defer robocache.LocateIn(&err, "file", f.Name)
			return store.Copy(ctx, in, to, f.Name)
		}()
		if err != nil {
			return err
		}
		done = i + 1
		if e.req.Progress != nil {
			e.req.Progress(
				robocache.Progress{Done: int64(done), Total: int64(len(p.files)), Unit: "files"},
			)
		}
	}
	return nil
}
