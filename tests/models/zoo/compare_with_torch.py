"""PROBE"""
import pathlib, subprocess, sys, tempfile, copy, math
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "benchmarks/peers"))
import torch, safetensors_file, torch_gradients, torch_zoo
torch.set_num_threads(2)
names = sys.argv[2:] or list(torch_zoo.NETWORKS)
def rel(a,b): return (a.double()-b.double()).norm().item()/max(b.double().norm().item(),1e-300)
STAT=("running_mean","running_variance")
for n in names:
    size=32 if torch_zoo.NETWORKS[n][1]==32 or n=="unet" else 64
    width=0.25 if n in ("wide_resnet28_10","unet") or n.startswith(("mobilenet","efficient")) else 1.0
    width=0.1 if n=="wide_resnet28_10" else width
    for seed in (1,2):
        m,x,y=torch_gradients.case(n,size,10,width,4,seed)
        with tempfile.TemporaryDirectory() as f:
            a,b=f+"/a.safetensors",f+"/b.safetensors"
            safetensors_file.write(a,torch_gradients.tensors_of_case(m,x,y))
            m32=copy.deepcopy(m)
            g64=torch_gradients.step(m,x,y)
            g32=torch_gradients.step(m32,x,y,torch.float32)
            text=f"{{zoo: {n}, classes: 10, input: [{size}, {size}, 3]"+(f", width: {width}" if width!=1 else "")+"}"
            r=subprocess.run([sys.argv[1],text,a,b],capture_output=True,text=True)
            if r.returncode: print(n,r.stderr.strip()); break
            out=safetensors_file.read(b)
        assert set(out)==set(g64),(set(out)^set(g64))
        grads=[k for k in g64 if k!="loss" and not k.endswith(STAT)]
        stats=[k for k in g64 if k.endswith(STAT)]
        cat=lambda d,ks: torch.cat([d[k].double().flatten() for k in ks]) if ks else torch.ones(1)
        gap=lambda d: [f"{v:.1e}" for v in (rel(d["loss"],g64["loss"]), rel(cat(d,grads),cat(g64,grads)), max(rel(d[k],g64[k]) for k in grads), rel(cat(d,stats),cat(g64,stats)))]
        worst=max(grads,key=lambda k: rel(out[k],g64[k]))
        print(n,seed,"loss %.4f norm %.2e"%(g64["loss"].item(),cat(g64,grads).norm().item()),"bantam",gap(out),"torch",gap(g32),worst,flush=True)
